"""Two runs, prompt by prompt: where they disagree, and how their texts differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import GenerationView, MarkView

Show = Literal["outcome", "text", "unsolved", "marked", "all"]
SHOWS: tuple[tuple[str, Show], ...] = (
    ("Different outcome", "outcome"),
    ("Different text", "text"),
    ("Not solved", "unsolved"),
    ("Marked", "marked"),
    ("All", "all"),
)
Ids = str | tuple[str, ...]
"""id of a run, or of the turns that are read as one: for a prompt in several turns, the last one counts"""
Marks = Mapping[tuple[str, int], "Sequence[MarkView]"]
"""by run and position of the prompt"""
LONGEST_DIFF = 4000  # words; longer differences are neither readable nor quick to compute


class DiffPiece(NamedTuple):
    """Part of a text. ``changed`` is true if the other text has something else there."""

    text: str
    changed: bool
    quoted: bool = False
    """whether a comment is on it"""


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

    @property
    def unsolved(self) -> bool:
        """Whether at least one of the two did not solve it."""
        return "correct" not in (self.a.outcome, self.b.outcome) or self.outcome_differs

    @property
    def gain(self) -> int:
        """1 if only the first solved it, -1 if only the second did, else 0."""
        return (self.a.outcome == "correct") - (self.b.outcome == "correct")


class Pairing(NamedTuple):
    """All shared prompts of two runs, by position, and everybody's marks on their outputs."""

    pairs: list[Pair]
    marks: Marks = MappingProxyType({})

    def count(self, a_solved: bool, b_solved: bool) -> int:  # pyrefly: ignore[bad-override]
        """Return the number of prompts in one cell of the two-by-two table."""
        return sum(
            (pair.a.outcome == "correct") == a_solved and (pair.b.outcome == "correct") == b_solved
            for pair in self.pairs
        )

    def filtered(self, show: Show) -> list[Pair]:
        """Return the prompts that a view asks for."""
        if show == "outcome":
            return [pair for pair in self.pairs if pair.outcome_differs]
        if show == "text":
            return [pair for pair in self.pairs if pair.text_differs]
        if show == "unsolved":
            return [pair for pair in self.pairs if pair.unsolved]
        if show == "marked":
            return [pair for pair in self.pairs if any((g.run_id, g.position) in self.marks for g in pair)]
        return self.pairs


def pair_up(repository: Repository, run_a: Ids, run_b: Ids) -> Pairing:
    """Return the prompts that both have done."""
    ids_a, ids_b = ((ids,) if isinstance(ids, str) else ids for ids in (run_a, run_b))
    answers_a, answers_b = ({g.position: g for id in ids for g in repository.generations(id)} for ids in (ids_a, ids_b))
    marks: dict[tuple[str, int], list[MarkView]] = {}
    for mark in repository.marks([*ids_a, *ids_b]):
        marks.setdefault((mark.run_id, mark.position), []).append(mark)
    positions = sorted(answers_a.keys() & answers_b.keys())
    return Pairing([Pair(answers_a[position], answers_b[position]) for position in positions], marks)


def difference(a: str, b: str) -> tuple[list[DiffPiece], list[DiffPiece]]:
    """Return both texts in pieces, word by word. The pieces concatenate to the texts."""
    words_a, words_b = _words(a), _words(b)
    if max(len(words_a), len(words_b)) > LONGEST_DIFF:
        return [DiffPiece(a, a != b)], [DiffPiece(b, a != b)]
    left, right = [], []
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, words_a, words_b, autojunk=False).get_opcodes():
        left.append(DiffPiece("".join(words_a[a0:a1]), tag != "equal"))
        right.append(DiffPiece("".join(words_b[b0:b1]), tag != "equal"))
    return _nonempty(left), _nonempty(right)


def quoting(pieces: Iterable[DiffPiece], start: int, end: int) -> list[DiffPiece]:
    """Return the pieces cut at a passage of their text, whose parts are marked as quoted."""
    result: list[DiffPiece] = []
    at = 0
    for piece in pieces:
        cuts = sorted({0, len(piece.text), *(min(max(cut - at, 0), len(piece.text)) for cut in (start, end))})
        for first, last in pairwise(cuts):
            result.append(DiffPiece(piece.text[first:last], piece.changed, start <= at + first < end))
        at += len(piece.text)
    return result


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|[^\s]+", text)


def _nonempty(pieces: Sequence[DiffPiece]) -> list[DiffPiece]:
    return [piece for piece in pieces if piece.text]
