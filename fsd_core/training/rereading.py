"""The target's distributions and states of texts that are there.

A GPU reads a text again faster than a disk gives back what was stored of it: the states of a token of SmolLM2-135M
take 3 KB, and its distribution's 32 likeliest tokens 192 bytes. So there each batch is read anew.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fsd_core.models.aux_hidden_states import AuxHiddenStates
from fsd_core.models.language_model import LanguageModel
from fsd_core.training.distillation import TOP_TOKENS, TrainingText, similar, tokens_of

TOKENS_AT_ONCE = 4096
"""tokens per forward; their float32 logits take 0.8 GB at a vocabulary of 50,000. A GPU takes eight times as many."""
SAMPLE = 512
"""texts of a source that are read to count a head's tokens"""
Source = tuple[LanguageModel, Sequence[TrainingText]]
"""a target, and the texts that it wrote"""


def read(
    target: LanguageModel, texts: Sequence[tuple[Sequence[int], Sequence[int]]], layers: tuple[int, ...] = ()
) -> list[TrainingText]:
    """Return training texts for token ids of prompts and answers, read in one batch, on the target's device.

    layers: those whose states are stored, as ``AuxHiddenStates`` counts them.
    """
    return _read(target, [(torch.tensor([*prompt, *answer]), len(prompt)) for prompt, answer in texts], layers)


@torch.no_grad()
def _read(target: LanguageModel, texts: Sequence[tuple[Tensor, int]], layers: tuple[int, ...]) -> list[TrainingText]:
    """Return the same for the tokens of whole texts, each with the number of those that are the prompt."""
    width = max(len(text) for text, _ in texts)
    tokens = torch.zeros(len(texts), width, dtype=torch.long)
    judged = torch.zeros(len(texts), width - 1, dtype=torch.bool)
    for row, (text, prompt) in enumerate(texts):
        tokens[row, : len(text)] = text
        judged[row, prompt - 1 : len(text) - 1] = True
    tokens, judged = tokens.to(target.device), judged.to(target.device)
    aux = AuxHiddenStates(layers) if layers else None
    cache = target.new_cache(width - 1, len(texts))  # nothing is predicted after the last token
    logits = target.forward(tokens[:, :-1], cache, aux_hidden_states=aux)[judged]  # [N,V]
    cache.release()
    likeliest, top = logits.topk(TOP_TOKENS)
    log_p = (likeliest - logits.logsumexp(-1, keepdim=True)).half()
    answers = [len(text) - prompt for text, prompt in texts]
    parts = zip(texts, top.int().split(answers), log_p.split(answers), strict=True)
    results = []
    seen = None if aux is None else aux.states.bfloat16()
    for row, ((text, prompt), text_top, text_log_p) in enumerate(parts):
        states = None if seen is None else seen[row, : len(text) - 1]
        results.append(TrainingText(tokens[row, : len(text)].int(), prompt, text_top, text_log_p, states))
    return results


def reread(target: LanguageModel, texts: Sequence[TrainingText], layers: tuple[int, ...] = ()) -> list[TrainingText]:
    """Return texts with their distributions, and the states of ``layers``, as the target computes them now."""
    at_once = TOKENS_AT_ONCE * (1 if target.device.type == "cpu" else 8)
    rows = max(1, at_once // max(map(tokens_of, texts)))
    found: list[TrainingText] = []
    for i in range(0, len(texts), rows):
        found += _read(target, [(text.tokens, text.prompt) for text in texts[i : i + rows]], layers)
    return found


def read_anew(
    sources: Sequence[Source], size: int, seed: int, layers: tuple[int, ...] = ()
) -> Iterator[list[TrainingText]]:
    """Yield groups of ``size`` texts of one source without end, read anew; each source as often as it has texts."""
    shuffle, shares = random.Random(seed), [len(texts) for _, texts in sources]
    groups = [similar(texts, tokens_of, size, seed) for _, texts in sources]
    while True:
        (chosen,) = shuffle.choices(range(len(sources)), shares)
        yield reread(sources[chosen][0], next(groups[chosen]), layers)
