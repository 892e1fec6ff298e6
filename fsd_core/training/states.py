"""Training data of an EAGLE head: texts of the target, with the target's states at each of their tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from fsd_core.models.language_model import LanguageModel
from fsd_core.training.distillation import TrainingText, read_file, similar, tokens_of
from fsd_core.training.rereading import read_anew


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


def stack(texts: Sequence[TrainingText], states: Sequence[Tensor]) -> TrainingBatch:
    """Return a batch where slot i of a text holds the state of token i and token i + 1, and predicts token i + 2.

    states: of each text's tokens but the last, [T − 1, ·].
    """
    slots, device = max(map(tokens_of, texts)) - 2, texts[0].tokens.device
    tokens = torch.zeros(len(texts), slots, dtype=torch.long, device=device)
    judged = torch.zeros(len(texts), slots, dtype=torch.bool, device=device)
    before, following = (states[0].new_zeros(len(texts), slots, states[0].shape[1]) for _ in range(2))
    top, p = [], []
    for row, (text, text_states) in enumerate(zip(texts, states, strict=True)):
        count = len(text.tokens)
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


def states_of(texts: Sequence[TrainingText]) -> list[Tensor]:
    """Return the states that were read with the texts."""
    return [text.states for text in texts if text.states is not None]


def stored(group: Sequence[Lesson]) -> TrainingBatch:
    """Return the batch of texts whose states are in files."""
    return stack([lesson.text for lesson in group], [lesson.states() for lesson in group])


def batches(written: Sequence[Lesson], size: int, seed: int) -> Iterator[TrainingBatch]:
    """Yield batches of texts of similar length without end, each text once per pass."""
    return map(stored, similar(written, lambda lesson: len(lesson.text.tokens), size, seed))


def batches_anew(
    target: LanguageModel, texts: Sequence[TrainingText], layers: tuple[int, ...], size: int, seed: int
) -> Iterator[TrainingBatch]:
    """Yield the same, with states and distributions that the target computes now."""
    for group in read_anew([(target, texts)], size, seed, layers):
        yield stack(group, states_of(group))


def noisy(batches: Iterator[TrainingBatch], width: float, seed: int) -> Iterator[TrainingBatch]:
    """Yield batches with uniform noise of this width on the states (Li et al. 2024, §4.2)."""
    generator = torch.Generator().manual_seed(seed)
    for batch in batches:
        added = (torch.rand(batch.states.shape, generator=generator) - 0.5) * width
        yield replace(batch, states=batch.states + added.to(batch.states))
