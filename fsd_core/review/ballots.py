"""Blind votes: the next prompt of a person, the side of each answer, and the tally."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from fsd_core.statistics.intervals import Interval, wilson

if TYPE_CHECKING:
    from fsd_core.review.history import Proposal

Side = Literal["setting", "baseline"]


class Tally(NamedTuple):
    """Votes on a proposal."""

    setting: int
    baseline: int
    ties: int
    both_bad: int

    @property
    def preference(self) -> tuple[float, Interval] | None:
        """The share of votes for the setting among those with a preference, with its 95 % Wilson interval."""
        decided = self.setting + self.baseline
        return (self.setting / decided, wilson(self.setting, decided)) if decided else None


def tally(proposal: Proposal) -> Tally:
    """Count the votes on a proposal's current runs."""
    choices = [vote.choice for vote in proposal.votes.values() if vote.run in proposal.runs]
    return Tally(*(choices.count(choice) for choice in ("setting", "baseline", "tie", "both bad")))


def next_position(proposal: Proposal, runs: Mapping[int, str], person: str) -> int | None:
    """Return the position of a prompt that a person has not voted on. The order is specific to the person. ``runs``
    holds the setting's run that answered, by position."""
    remaining = [position for position, run in runs.items() if not proposal.has_vote(run, position, person)]
    return min(remaining, key=lambda position: _hash(proposal.id, person, position), default=None)


def left_side(proposal: Proposal, person: str, position: int) -> Side:
    """Return whose answer is on the left. Both are equally likely, and the page does not tell."""
    return "setting" if _hash(proposal.id, person, position) % 2 else "baseline"


def _hash(*key: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[-8:], "big")
