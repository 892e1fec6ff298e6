"""The output of a playground job by setting, and a comparison of the settings once they are done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from dashboard.tables.prompt_pairs import DiffPiece, difference
from fsd_core.config import DecodingConfig
from fsd_core.errors import DataDamaged
from fsd_core.formatting import count
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.playground_chunks import Chunk, EmittedToken, StreamFigures
from fsd_core.storage.records import UNENDED

MOST_OUTPUT_PANELS = 4
OTHER_PROGRAMS_BUSY = "Other programs kept the processor busy meanwhile: generate again to compare speeds."


@dataclass(frozen=True)
class OutputPanel:
    """One setting's tokens and its latest figures, up to the chunk ``after``."""

    decoding: DecodingConfig
    tokens: tuple[EmittedToken, ...] = ()
    figures: StreamFigures | None = None
    done: bool = False
    stop_reason: str | None = None
    error: str | None = None
    after: int = -1

    def with_chunk(self, sequence: int, chunk: Chunk) -> OutputPanel:
        """Return the panel with the next chunk of this setting's stream."""
        return replace(
            self, tokens=self.tokens + chunk.tokens, figures=chunk.figures, done=chunk.done,
            stop_reason=chunk.stop_reason, error=chunk.error, after=sequence,
        )  # fmt: skip

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


@dataclass(frozen=True)
class FollowedJob:
    """A playground job as far as it was read."""

    id: str
    message: PlaygroundJob
    panels: tuple[OutputPanel, ...]
    status: str = "queued"
    cancel_requested: bool = False
    error: str | None = None

    @property
    def after(self) -> int:
        """The last chunk that was read."""
        return max((panel.after for panel in self.panels), default=-1)

    @property
    def ended(self) -> bool:
        return self.status not in UNENDED

    @property
    def has_output(self) -> bool:
        return any(panel.tokens or panel.done for panel in self.panels)

    def with_chunks(self, chunks: Sequence[tuple[int, Chunk]]) -> FollowedJob:
        """Return the job with its next chunks. Raises ``DataDamaged`` for an unknown setting."""
        panels = [*self.panels]
        for sequence, chunk in chunks:
            if chunk.setting >= len(panels):
                raise DataDamaged(f"The job has no setting {chunk.setting + 1}: what is stored of it was damaged.")
            panels[chunk.setting] = panels[chunk.setting].with_chunk(sequence, chunk)
        return replace(self, panels=tuple(panels))


def comparison(panels: Sequence[OutputPanel]) -> list[str]:
    """Return a sentence for each setting after the first: its speed relative to the first, and where their texts
    differ.

    If the machine was busy, a last sentence doubts the speeds.
    """
    first, *remaining = panels
    if first.error or not first.tokens:
        return []
    sentences = [_relative(panel, first) for panel in remaining if not panel.error and panel.tokens]
    return (
        [*sentences, OTHER_PROGRAMS_BUSY]
        if sentences and any(panel.figures and panel.figures.held_up for panel in panels)
        else sentences
    )


def differences(panels: Sequence[OutputPanel]) -> list[list[DiffPiece]]:
    """Return each text in pieces: of the first those that another text has otherwise, of the others those that the
    first has otherwise. Empty for a text that cannot be compared."""
    first, *remaining = panels
    pieces: list[list[DiffPiece]] = [[] for _ in panels]
    if first.error or not first.tokens:
        return pieces
    changed = [False] * len(first.text)
    for i, panel in enumerate(remaining, 1):
        if panel.error or not panel.tokens:
            continue
        own, pieces[i] = difference(first.text, panel.text)
        flags = (piece.changed for piece in own for _ in piece.text)
        changed = [before or now for before, now in zip(changed, flags, strict=True)]
    runs = groupby(zip(first.text, changed, strict=True), key=itemgetter(1))
    pieces[0] = [DiffPiece("".join(character for character, _ in run), differs) for differs, run in runs]
    return pieces


def _relative(panel: OutputPanel, first: OutputPanel) -> str:
    speed, reference = (output.figures.tokens_per_second if output.figures else None for output in (panel, first))
    pace = f"wrote {speed / reference:.2f}× as fast as {first.decoding.label}" if speed and reference else "wrote"
    return f"{panel.decoding.label} {pace}; {_texts(panel, first)}."


def _texts(panel: OutputPanel, first: OutputPanel) -> str:
    a, b = panel.ids, first.ids
    if a == b:
        return "their texts are identical"
    index = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    greedy = panel.decoding.sampling.greedy and first.decoding.sampling.greedy
    both_exact = panel.decoding.acceptance.lossless and first.decoding.acceptance.lossless
    why = ", as lossless samples may: only their distribution is the same" if both_exact and not greedy else ""
    return f"their texts differ from token {index + 1}{why} ({count(len(a), 'token')} and {len(b):,})"
