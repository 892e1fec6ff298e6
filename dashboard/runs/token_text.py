"""Recorded rounds as the tokens a page shows: the texts come from the pair's tokenizer, read without any model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from fsd_core.decoding.trace import StepRecord
from fsd_core.errors import ModelUnavailable
from fsd_core.models.pairs import get_pair
from fsd_core.models.shelf import obtained


def shown_tokens(pair: str, records: Sequence[StepRecord]) -> list[dict[str, Any]]:
    """The written tokens in the format of the playground's stream; joined, their texts are the decoded text.

    A token that ends inside a character has no text; the one that completes the character has it all.
    Raises ``UnknownName`` or ``ModelUnavailable`` where the pair's tokenizer cannot be had.
    """
    tokenizer = _tokenizer(pair)
    stream = DecodeStream(skip_special_tokens=True)
    ids = [token for record in records for token in record.emitted]
    shown = [token for record in records for token in _tokens(record)]
    for id, token in zip(ids, shown, strict=True):
        token["text"] = stream.step(tokenizer, id) or ""
    for token in shown:
        if "rejected" in token:
            token["rejected"] = tokenizer.decode([token["rejected"]])
    if shown:
        written = sum(len(token["text"]) for token in shown)
        shown[-1]["text"] += tokenizer.decode(ids)[written:]
    return shown


def _tokens(record: StepRecord) -> list[dict[str, Any]]:
    """One round's tokens, without their texts; ``rejected`` is still an id."""
    judged = len(record.divergence)
    tokens = []
    for i, token in enumerate(record.emitted):
        shown: dict[str, Any] = {
            "id": token,
            "kind": record.kinds[i],
            "divergence": record.divergence[i] if i < judged else None,
            "p": record.target_probability[i] if i < judged else None,
            "q": record.draft_probability[i] if i < judged else None,
            "probability": record.emitted_probability[i],
        }
        if record.kinds[i] == "correction" and i < len(record.drafted):
            shown["rejected"] = record.drafted[i]
        tokens.append(shown)
    return tokens


@lru_cache(maxsize=4)
def _tokenizer(pair: str) -> Tokenizer:
    spec = get_pair(pair)
    folders = [folder for folder in (obtained(spec.target), obtained(spec.draft)) if folder is not None]
    # A draft on its target's embedding has no tokenizer of its own.
    whole = [folder for folder in folders if (folder / "tokenizer.json").is_file()]
    folder = next(iter(whole or folders), None)
    if folder is None:
        raise ModelUnavailable(f"The tokenizer of the pair '{pair}' is not on this machine: run the pair once.")
    path = folder / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exception for a file that is missing or damaged
        raise ModelUnavailable(
            f"The tokenizer of the pair '{pair}' cannot be read ({path.name}: {error}). Put its model folder back."
        ) from None
