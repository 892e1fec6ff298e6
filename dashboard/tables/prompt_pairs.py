"""Two runs, prompt by prompt: where they disagree, and how their texts differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from fsd_core.tracking.database.repository import Repository
    from fsd_core.tracking.records import GenerationView

Show = Literal["outcome", "text", "all"]
SHOWS: tuple[tuple[str, Show], ...] = (
    ("Different outcome", "outcome"),
    ("Different text", "text"),
    ("All prompts", "all"),
)
LONGEST_DIFF = 4000  # words; beyond it a difference is neither readable nor quick to find


class Piece(NamedTuple):
    """Part of a text; ``changed`` where the other text has something else."""

    text: str
    changed: bool


class Pair(NamedTuple):
    """One prompt as both runs answered it."""

    a: GenerationView
    b: GenerationView

    @property
    def outcome_differs(self) -> bool:
        return (self.a.outcome == "correct") != (self.b.outcome == "correct")

    @property
    def text_differs(self) -> bool:
        return self.a.text != self.b.text


class Pairing(NamedTuple):
    """All shared prompts of two runs, by position."""

    pairs: list[Pair]

    def count(self, a_solved: bool, b_solved: bool) -> int:
        """Prompts of one cell of the two-by-two table."""
        return sum(
            (pair.a.outcome == "correct") == a_solved and (pair.b.outcome == "correct") == b_solved
            for pair in self.pairs
        )

    def filtered(self, show: Show) -> list[Pair]:
        """The prompts that a view asks for."""
        if show == "outcome":
            return [pair for pair in self.pairs if pair.outcome_differs]
        if show == "text":
            return [pair for pair in self.pairs if pair.text_differs]
        return self.pairs


def pair_up(repository: Repository, run_a: str, run_b: str) -> Pairing:
    """The prompts that both runs have done."""
    ours = {g.position: g for g in repository.generations(run_a)}
    theirs = {g.position: g for g in repository.generations(run_b)}
    return Pairing([Pair(ours[position], theirs[position]) for position in sorted(ours.keys() & theirs.keys())])


def difference(a: str, b: str) -> tuple[list[Piece], list[Piece]]:
    """Both texts in pieces, word by word; their concatenations are the texts."""
    words_a, words_b = _words(a), _words(b)
    if max(len(words_a), len(words_b)) > LONGEST_DIFF:
        return [Piece(a, a != b)], [Piece(b, a != b)]
    left, right = [], []
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, words_a, words_b, autojunk=False).get_opcodes():
        left.append(Piece("".join(words_a[a0:a1]), tag != "equal"))
        right.append(Piece("".join(words_b[b0:b1]), tag != "equal"))
    return _kept(left), _kept(right)


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|[^\s]+", text)


def _kept(pieces: Sequence[Piece]) -> list[Piece]:
    return [piece for piece in pieces if piece.text]
