"""The output of a playground job by setting, and a comparison of the settings once they are done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fsd_core.config import LONGEST_PROMPT, DecodingConfig
from fsd_core.errors import DataDamaged, InvalidSetting
from fsd_core.formatting import count
from fsd_core.storage.messages import Chunk, EmittedToken, PlaygroundJob, StreamFigures

MOST_OUTPUT_PANELS = 4
OTHER_PROGRAMS_BUSY = "Other programs kept the processor busy meanwhile: generate again to compare speeds."


@dataclass
class OutputPanel:
    """One setting's tokens and its latest figures."""

    decoding: DecodingConfig
    tokens: list[EmittedToken] = field(default_factory=list)
    figures: StreamFigures | None = None
    done: bool = False
    stop_reason: str | None = None
    error: str | None = None

    def add(self, chunk: Chunk) -> None:
        """Append the next chunk of this setting's stream."""
        self.tokens += chunk.tokens
        self.figures = chunk.figures
        self.done, self.stop_reason, self.error = chunk.done, chunk.stop_reason, chunk.error

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]


@dataclass
class FollowedJob:
    """A playground job that the page follows. ``after`` is the last chunk that was read."""

    id: str
    lanes: list[OutputPanel]
    after: int = -1
    said: str = ""
    """the notice that the page shows while it waits"""

    def add(self, chunks: Sequence[tuple[int, Chunk]]) -> set[int]:
        """Append new chunks and return the settings they belong to. Raises ``DataDamaged`` for an unknown setting."""
        for sequence, chunk in chunks:
            if chunk.setting >= len(self.lanes):
                raise DataDamaged(f"The job has no setting {chunk.setting + 1}: what is stored of it was damaged.")
            self.lanes[chunk.setting].add(chunk)
            self.after = sequence
        return {chunk.setting for _, chunk in chunks}

    @property
    def begun(self) -> bool:
        return any(lane.tokens or lane.done for lane in self.lanes)


def payload(
    pair: str, prompt: str, seed: int, decodings: Sequence[DecodingConfig], owner: str | None = None
) -> PlaygroundJob:
    """Return the job's payload. Raises ``InvalidSetting`` for an empty or too long prompt, or an invalid seed."""
    if len(prompt) > LONGEST_PROMPT:
        raise InvalidSetting(f"The prompt has {len(prompt):,} characters: expected at most {LONGEST_PROMPT:,}.")
    if not prompt.strip():
        raise InvalidSetting("The prompt is empty: write one, or pick an example.")
    if not 0 <= seed < 2**31:
        raise InvalidSetting(f"The seed {seed} cannot be used: expected a whole number from 0 to {2**31 - 1}.")
    return PlaygroundJob.of(pair, prompt, seed, decodings, owner)


def comparison(lanes: Sequence[OutputPanel]) -> list[str]:
    """Return a sentence for each setting after the first: its speed relative to the first, and where their texts
    differ.

    If the machine was busy, a last sentence doubts the speeds.
    """
    first, *remaining = lanes
    if first.error or not first.tokens:
        return []
    sentences = [_relative(lane, first) for lane in remaining if not lane.error and lane.tokens]
    return (
        [*sentences, OTHER_PROGRAMS_BUSY]
        if sentences and any(lane.figures and lane.figures.held_up for lane in lanes)
        else sentences
    )


def _relative(lane: OutputPanel, first: OutputPanel) -> str:
    speed, reference = (panel.figures.tokens_per_second if panel.figures else None for panel in (lane, first))
    pace = f"wrote {speed / reference:.2f}× as fast as {first.decoding.label}" if speed and reference else "wrote"
    return f"{lane.decoding.label} {pace}; {_texts(lane, first)}."


def _texts(lane: OutputPanel, first: OutputPanel) -> str:
    a, b = lane.ids, first.ids
    if a == b:
        return "their texts are identical"
    index = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    greedy = lane.decoding.sampling.greedy and first.decoding.sampling.greedy
    both_exact = lane.decoding.acceptance.lossless and first.decoding.acceptance.lossless
    why = ", as lossless samples may: only their distribution is the same" if both_exact and not greedy else ""
    return f"their texts differ from token {index + 1}{why} ({count(len(a), 'token')} and {len(b):,})"
