"""Training data of an EAGLE head: texts of the target, with the target's states at each of their tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from fsd_core.training.distillation import TrainingText, read_file


@dataclass(frozen=True)
class Lesson:
    """A text and the location of the states of its tokens."""

    text: TrainingText
    file: Path
    start: int

    def states(self) -> Tensor:
        """Return those of all tokens but the last, [T − 1, ·]."""
        with safe_open(self.file, "pt") as stored:
            return stored.get_slice("states")[self.start : self.start + len(self.text.tokens) - 1]


def lessons(folder: Path) -> list[Lesson]:
    """Return the texts of a folder that were written with their states."""
    written = []
    for file in sorted(folder.glob("*.safetensors")):
        start = 0
        for text in read_file(file):
            written.append(Lesson(text, file, start))
            start += len(text.tokens) - 1
    return written


@dataclass(frozen=True)
class TrainingBatch:
    """Texts padded on the right. A slot holds a token and the state before it. A text has T slots.

    tokens: int64 [B,T], each slot's; states: [B,T,·] of the target; following: [B,T,·], those that the slots should
    predict; judged: bool [B,T], the slots whose distribution is known; top, p: int64 [N,TOP_TOKENS] and [N,TOP_TOKENS],
    its tokens and their probabilities.
    """

    tokens: Tensor
    states: Tensor
    following: Tensor
    judged: Tensor
    top: Tensor
    p: Tensor


def stack(group: Sequence[Lesson]) -> TrainingBatch:
    """Return a batch where slot i of a text holds the state of token i and token i + 1, and predicts token i + 2."""
    slots, states = max(len(lesson.text.tokens) for lesson in group) - 2, [lesson.states() for lesson in group]
    tokens = torch.zeros(len(group), slots, dtype=torch.long)
    judged = torch.zeros(len(group), slots, dtype=torch.bool)
    before, following = (states[0].new_zeros(len(group), slots, states[0].shape[1]) for _ in range(2))
    top, p = [], []
    for row, (lesson, text_states) in enumerate(zip(group, states, strict=True)):
        text, count = lesson.text, len(lesson.text.tokens)
        tokens[row, : count - 2] = text.tokens[1:-1]
        before[row, : count - 2], following[row, : count - 2] = text_states[:-1], text_states[1:]
        first = max(text.prompt - 2, 0)
        judged[row, first : count - 2] = True
        skipped = first + 2 - text.prompt
        top.append(text.top[skipped:])
        p.append(text.log_p[skipped:])
    weights = torch.cat(p).float().exp()
    return TrainingBatch(
        tokens, before, following, judged, torch.cat(top).long(), weights / weights.sum(-1, keepdim=True)
    )


def batches(written: Sequence[Lesson], size: int, seed: int, noise: float = 0.0) -> Iterator[TrainingBatch]:
    """Yield batches without end, texts of similar length together, each text once per pass.

    ``noise``: width of the uniform noise on the states (Li et al. 2024, §4.2).
    """
    shuffle, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    while True:
        order = sorted(written, key=lambda lesson: len(lesson.text.tokens) + shuffle.random() * 16)
        groups = [order[i : i + size] for i in range(0, len(order), size)]
        shuffle.shuffle(groups)
        for batch in map(stack, groups):
            if noise:
                added = (torch.rand(batch.states.shape, generator=generator) - 0.5) * noise
                batch = replace(batch, states=batch.states + added.to(batch.states.dtype))
            yield batch
