"""Tables of tri-grams: which tokens followed which two in training texts, and how often.

A table is a folder with ``model.safetensors``: ``keys`` int64 [K], ascending, first · V + second for a vocabulary of V
tokens; ``starts`` int32 [K+1], where the successors of each pair begin; ``tokens`` int32 [E] and ``weights`` float16
[E], the successors and their shares. Its metadata name V and the tokenizer, as JSON.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from fsd_core.errors import IncompatibleModels, ModelUnavailable

_FILE = "model.safetensors"
_ABOUT = "trigrams"
_MADE_BY = "make one with `train trigrams`"


@dataclass(frozen=True, eq=False)
class TrigramCounts:
    """The heaviest successors of pairs of tokens, in the tensors that the module describes."""

    vocabulary: int
    keys: Tensor
    starts: Tensor
    tokens: Tensor
    weights: Tensor

    def following(self, pair: tuple[int, int]) -> dict[int, float]:
        """Return the successors of a pair with their shares; empty for a pair that never occurred."""
        key, keys = pair[0] * self.vocabulary + pair[1], self.keys.numpy()
        index = bisect_left(keys, key)
        if index == len(keys) or keys[index] != key:
            return {}
        successors = slice(int(self.starts[index]), int(self.starts[index + 1]))
        return dict(zip(self.tokens[successors].tolist(), self.weights[successors].tolist(), strict=True))


def count(texts: Iterable[Sequence[int]], vocabulary: int, most_successors: int = 12, least: int = 1) -> TrigramCounts:
    """Return the table of some texts, the ``most_successors`` commonest of each pair, of equal ones the lower ids.

    Tri-grams that occur less than ``least`` times are left out.
    """
    found: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for text in texts:
        for first, second, token in zip(text, text[1:], text[2:], strict=False):
            found[first * vocabulary + second][token] += 1
    kept = {key: [item for item in tokens.items() if item[1] >= least] for key, tokens in found.items()}
    keys = sorted(key for key, items in kept.items() if items)
    heaviest = [sorted(kept[key], key=lambda item: (-item[1], item[0]))[:most_successors] for key in keys]
    ends = torch.tensor([0, *(len(successors) for successors in heaviest)]).cumsum(0)
    shares = [times / found[key].total() for key, each in zip(keys, heaviest, strict=True) for _, times in each]
    tokens = [token for each in heaviest for token, _ in each]
    return TrigramCounts(
        vocabulary, torch.tensor(keys, dtype=torch.int64), ends.int(), torch.tensor(tokens).int(),
        torch.tensor(shares).half(),
    )  # fmt: skip


def save_trigrams(counts: TrigramCounts, folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write a table of texts of this tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: getattr(counts, name).contiguous() for name in ("keys", "starts", "tokens", "weights")}
    about = json.dumps({"vocabulary": counts.vocabulary, "tokenizer": _digest(tokenizer)})
    save_file(tensors, folder / _FILE, {_ABOUT: about})  # one entry: several come in any order


def load_trigrams(folder: Path, tokenizer: PreTrainedTokenizerBase) -> TrigramCounts:
    """Return the table in ``folder``. Raises ``ModelUnavailable`` for a damaged one, ``IncompatibleModels`` for one of
    another tokenizer."""
    try:
        with safe_open(folder / _FILE, "pt") as file:
            about = json.loads((file.metadata() or {})[_ABOUT])
            counts = TrigramCounts(
                int(about["vocabulary"]), *(file.get_tensor(name) for name in ("keys", "starts", "tokens", "weights"))
            )
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ModelUnavailable(
            f"The table of tri-grams in {folder} cannot be read ({type(error).__name__}): {_MADE_BY}."
        ) from error
    if about.get("tokenizer") != _digest(tokenizer):
        raise IncompatibleModels(
            f"The table of tri-grams in {folder} was made for another tokenizer than the target's: {_MADE_BY}."
        )
    if not _is_whole(counts):
        raise ModelUnavailable(f"The table of tri-grams in {folder} is damaged: {_MADE_BY}.")
    return counts


def _is_whole(counts: TrigramCounts) -> bool:
    keys, starts, tokens, weights = counts.keys, counts.starts, counts.tokens, counts.weights
    sizes = [list(part.shape) for part in (keys, starts, tokens, weights)]
    if sizes != [[len(keys)], [len(keys) + 1], [len(tokens)], [len(tokens)]]:
        return False
    if [part.dtype for part in (keys, starts, tokens, weights)] != [torch.int64, torch.int32, torch.int32, torch.half]:
        return False
    ascending = bool((keys.diff() > 0).all() and (starts.diff() > 0).all())
    covers = starts[0] == 0 and starts[-1] == len(tokens)
    tops = (keys, counts.vocabulary**2), (tokens, counts.vocabulary)
    known = all(bool(((part >= 0) & (part < top)).all()) for part, top in tops)
    return ascending and bool(covers) and known and bool(((weights > 0) & (weights <= 1)).all())


def _digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return 16 hex digits of the SHA-256 of a tokenizer's tokens and their ids."""
    return hashlib.sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()[:16]
