"""Training texts of a draft: the target's distribution at every token, and mostly the target's own words."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from fsd_core.models.aux_hidden_states import AuxHiddenStates
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.prompt import encode_prompt
from fsd_core.ops.sampling import draw
from fsd_core.training.loop import mixed_precision
from fsd_core.whole_files import whole_file

T = TypeVar("T")
TOP_TOKENS = 32
"""number of likeliest tokens stored per distribution: the others have too little probability for their bytes"""


@dataclass(frozen=True)
class TrainingText:
    """A prompt and an answer, written or read by the target."""

    tokens: Tensor
    """int32 [T], prompt first"""
    prompt: int
    """number of prompt tokens"""
    top: Tensor
    """int32 [T − prompt, K]: the likeliest tokens at each position of the answer; K is ``TOP_TOKENS``, or 0 in a text
    whose distributions are read anew"""
    log_p: Tensor
    """float16 [T − prompt, K]: their log-probabilities under the raw target"""
    states: Tensor | None = None
    """bfloat16 [T − 1, ·]: states of the target at all tokens but the last, if requested"""


@torch.inference_mode()
def answer(
    target: LanguageModel,
    prompts: Sequence[Sequence[int]],
    greedy: Tensor,
    limit: int,
    generator: torch.Generator,
    layers: tuple[int, ...] = (),
    stored: int = TOP_TOKENS,
) -> list[TrainingText]:
    """Return answers to prompts of similar length, each up to its end token or ``limit`` tokens.

    prompts: token ids. greedy: bool [B], rows that take the likeliest token. The others sample at temperature 1.
    layers: those whose states are stored, as ``AuxHiddenStates`` counts them. stored: likeliest tokens stored of each
    distribution, 0 if it will be read anew. ``generator``: on the CPU, whatever the target's device.
    All rows advance together: while one still reads its prompt, others write. A row that has ended leaves the batch.
    """
    device, sizes, count = target.device, [len(prompt) for prompt in prompts], len(prompts)
    shortest, longest = min(sizes), max(sizes)
    tokens = torch.zeros(count, longest + limit, dtype=torch.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = torch.tensor(prompt)
    tokens, lengths, greedy = tokens.to(device), torch.tensor(sizes, device=device), greedy.to(device)
    top = torch.zeros(count, limit, stored, dtype=torch.int32, device=device)
    top_log_p = torch.zeros(count, limit, stored, dtype=torch.float16, device=device)
    aux, states = AuxHiddenStates(layers) if layers else None, torch.empty(0)
    cache = target.new_cache(longest + limit, count)
    end = torch.tensor(sorted(target.eos_tokens), device=device)
    rows, ends = torch.arange(count, device=device), lengths + limit  # ends: number of tokens of each text
    fed = tokens[:, :shortest].long()
    for position in range(shortest, longest + limit):
        log_p = target.forward(fed, cache, logits_to_keep=1, aux_hidden_states=aux)[:, -1].log_softmax(-1)  # [B,V]
        if aux is not None:
            new = aux.states.bfloat16()
            if not len(states):
                states = new.new_zeros(count, longest + limit, new.shape[-1])
            states[rows, position - fed.shape[1] : position] = new
        # torch.multinomial takes ten times as long.
        sampled = draw(log_p.exp(), torch.rand(len(rows), generator=generator).to(device))
        sampled = torch.where(greedy[rows], log_p.argmax(-1), sampled).int()
        writing = (position >= lengths[rows]) & (position < ends[rows])
        sampled = torch.where(writing, sampled, tokens[rows, position])
        tokens[rows, position] = sampled
        if stored:
            values, indices = log_p.topk(stored)
            at, place = rows[writing], position - lengths[rows[writing]]
            top[at, place], top_log_p[at, place] = indices[writing].int(), values[writing].half()
        ends[rows] = torch.where(writing & torch.isin(sampled, end), position + 1, ends[rows])
        alive = position + 1 < ends[rows]
        left = int(alive.sum())
        if not left:
            break
        fed = sampled[:, None].long()
        if left < 0.8 * len(rows):  # copying a cache costs as much as a few tokens
            rows, fed = rows[alive], fed[alive]
            cache.keep_rows(alive.nonzero()[:, 0])
    cache.release()
    return [
        TrainingText(
            tokens[row, :stop].clone(),
            size,
            top[row, : stop - size].clone(),
            top_log_p[row, : stop - size].clone(),
            states[row, : stop - 1].clone() if layers else None,
        )
        for row, (size, stop) in enumerate(zip(sizes, ends.tolist(), strict=True))
    ]


def write_texts(
    target: LanguageModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Iterator[str],
    folder: Path,
    count: int,
    limit: int = 160,
    longest_prompt: int = 600,
    batch: int = 96,
    seed: int = 0,
    layers: tuple[int, ...] = (),
    stored: int = TOP_TOKENS,
    report: Callable[[dict], None] = lambda row: None,
) -> None:
    """Write ``count`` texts as files under ``folder``. Existing files are not written again.

    Prompts of similar length are answered together. ``layers``, ``stored``: see :func:`answer`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    encoded = (encode_prompt(tokenizer, question) for question in questions)
    longest_prompt = min(longest_prompt, target.context - limit)
    prompts = sorted(islice((ids for ids in encoded if len(ids) <= longest_prompt), count), key=len)
    groups = [prompts[i : i + batch] for i in range(0, len(prompts), batch)]
    random.Random(seed).shuffle(groups)
    for number, group in enumerate(groups):
        file = folder / f"{number:05d}.safetensors"
        if file.exists():
            continue
        generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
        texts = answer(target, group, torch.arange(len(group)) % 2 == 0, limit, generator, layers, stored)
        save_texts(texts, file)
        report(
            {"file": number + 1, "of": len(groups), "rows": len(group), "tokens": sum(len(text.top) for text in texts)}
        )


def save_texts(texts: Sequence[TrainingText], file: Path) -> None:
    """Write texts in the format of :func:`read_file`. The file appears completely or not at all."""
    states = [text.states for text in texts if text.states is not None]
    packed = {
        **({"states": torch.cat(states)} if states else {}),
        "tokens": torch.cat([text.tokens for text in texts]),
        "lengths": torch.tensor([len(text.tokens) for text in texts]),
        "prompts": torch.tensor([text.prompt for text in texts]),
        "top": torch.cat([text.top for text in texts]),
        "log_p": torch.cat([text.log_p for text in texts]),
    }
    with whole_file(file) as partial:
        save_file(packed, partial)


def read_texts(folder: Path) -> list[TrainingText]:
    """Return every stored text, in order."""
    return [text for file in sorted(folder.glob("*.safetensors")) for text in read_file(file)]


def read_file(file: Path) -> list[TrainingText]:
    """Return the texts of one file of :func:`save_texts`."""
    with safe_open(file, "pt") as stored:  # the states are not loaded
        tensors = {name: stored.get_tensor(name) for name in ("tokens", "lengths", "prompts", "top", "log_p")}
    answers = (tensors["lengths"] - tensors["prompts"]).tolist()
    parts = zip(
        tensors["tokens"].split(tensors["lengths"].tolist()), tensors["prompts"].tolist(),
        tensors["top"].split(answers), tensors["log_p"].split(answers), strict=True,
    )  # fmt: skip
    return [TrainingText(*part) for part in parts]


Batch = tuple[Tensor, Tensor, Tensor, Tensor]
"""tokens int64 [B,T]; judged bool [B,T], true before answer tokens; top int64 [N,TOP_TOKENS]; p [N,TOP_TOKENS]"""


def stack(texts: list[TrainingText]) -> Batch:
    """Return texts padded on the right, which a causal model does not see, and their distributions row by row."""
    width, device = max(len(text.tokens) for text in texts), texts[0].tokens.device
    tokens = torch.zeros(len(texts), width, dtype=torch.long, device=device)
    judged = torch.zeros(len(texts), width, dtype=torch.bool, device=device)
    for i, text in enumerate(texts):
        tokens[i, : len(text.tokens)] = text.tokens
        judged[i, text.prompt - 1 : len(text.tokens) - 1] = True
    p = torch.cat([text.log_p for text in texts]).float().exp()
    return tokens, judged, torch.cat([text.top for text in texts]).long(), p / p.sum(-1, keepdim=True)


def similar(texts: Sequence[T], length: Callable[[T], int], size: int, seed: int) -> Iterator[list[T]]:
    """Yield groups of ``size`` texts without end, texts of similar length together, each text once per pass."""
    shuffle = random.Random(seed)
    while True:
        order = sorted(texts, key=lambda text: length(text) + shuffle.random() * 16)
        groups = [order[i : i + size] for i in range(0, len(order), size)]
        shuffle.shuffle(groups)
        yield from groups


def tokens_of(text: TrainingText) -> int:
    """Return how many tokens a text has."""
    return len(text.tokens)


def batches(texts: list[TrainingText], size: int, seed: int) -> Iterator[Batch]:
    """Yield batches of :func:`similar` texts without end."""
    return map(stack, similar(texts, tokens_of, size, seed))


def answer_logits(model: PreTrainedModel, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return a draft's logits where answers are predicted, [N,K], over the tokens of its reduced head.

    Also return the target's likeliest tokens as indices into these, int64 [N,TOP_TOKENS], and their probabilities, 0
    for a token outside the reduced head, whose index is arbitrary.
    """
    device = model.device
    tokens, judged, top, p = (part.to(device) for part in batch)
    with mixed_precision(device):
        hidden = model.model(tokens, use_cache=False).last_hidden_state  # [B,T,H]
        logits = model.lm_head.reduced_logits(hidden[judged])
    index_of = torch.full((model.config.vocab_size,), -1, device=device)
    index_of[model.lm_head.tokens] = torch.arange(logits.shape[-1], device=device)
    at = index_of[top]
    return logits, at.clamp_min(0), p * (at >= 0)


def cross_entropy(model: PreTrainedModel, batch: Batch) -> Tensor:
    """Return the mean over answer tokens of −Σ p ln q in nats (Hinton et al. 2015).

    Both are over the tokens of the draft's reduced head, and p is the target's stored distribution.
    """
    logits, at, p = answer_logits(model, batch)
    p = p / p.sum(-1, keepdim=True).clamp_min(1e-6)
    expected = (p * logits.gather(1, at).float()).sum(-1)
    return (torch.logsumexp(logits.float(), -1) - expected).mean()


@torch.inference_mode()
def agreement(model: PreTrainedModel, texts: list[TrainingText], size: int = 16) -> dict[str, float]:
    """Return how a draft would fare on texts it has not seen, per token.

    ``overlap``: mean of Σ min(p, q), the chance that a token sampled from q is accepted at temperature 1 (a lower
    bound, because only the stored part of p counts). ``same_choice``: share of positions with the same likeliest token.
    """
    overlap = same = count = 0.0
    for i in range(0, len(texts), size):
        batch = stack(texts[i : i + size])
        logits, at, probabilities = answer_logits(model, batch)
        raw = torch.cat([text.log_p for text in texts[i : i + size]]).float().exp().to(probabilities.device)
        q = logits.float().softmax(-1).gather(1, at)
        overlap += float(torch.minimum(raw * (probabilities > 0), q * (1 - model.config.rest_share)).sum())
        same += float(((logits.argmax(-1) == at[:, 0]) & (probabilities[:, 0] > 0)).sum())
        count += len(at)
    return {"overlap": round(overlap / count, 4), "same_choice": round(same / count, 4)}


def common_tokens(texts: list[TrainingText], count: int, vocabulary: int, always: Iterable[int]) -> Tensor:
    """Return the ``count`` tokens with the most target probability in these texts, int64 [count], ascending.

    ``always``: tokens that are included whatever the texts say.
    """
    order = _mass(texts, vocabulary)
    order[list(always)] = float("inf")
    return order.topk(count).indices.sort().values


def share_of_others(texts: list[TrainingText], tokens: Tensor, vocabulary: int) -> float:
    """Return the share of all tokens but ``tokens`` (int64 [K]) in the stored probability of these texts."""
    mass = _mass(texts, vocabulary)
    return float(1 - mass[tokens].sum() / mass.sum())


def _mass(texts: list[TrainingText], vocabulary: int) -> Tensor:
    """Return the expected number of occurrences of each token, from the stored distributions, float64 [V]."""
    mass = torch.zeros(vocabulary, dtype=torch.float64)
    for text in texts:
        mass.index_add_(0, text.top.cpu().flatten().long(), text.log_p.cpu().double().exp().flatten())
    return mass
