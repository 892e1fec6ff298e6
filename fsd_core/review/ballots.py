"""Blind votes: which prompt a person is shown next, which answer on which side, and what came of it."""

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
        """Of the votes that preferred one, the share for the setting, with Wilson's 95 % interval."""
        decided = self.setting + self.baseline
        return (self.setting / decided, wilson(self.setting, decided)) if decided else None


def tally(proposal: Proposal) -> Tally:
    """The votes on a proposal's present runs."""
    choices = [vote.choice for vote in proposal.votes.values() if vote.run in proposal.runs]
    return Tally(*(choices.count(choice) for choice in ("setting", "baseline", "tie", "both bad")))


def next_position(proposal: Proposal, runs: Mapping[int, str], person: str) -> int | None:
    """Of prompts, one that a person has not voted on; each person gets them in an order of their own. ``runs``: the
    setting's run that answered, by position."""
    left = [position for position, run in runs.items() if (run, position, person) not in proposal.votes]
    return min(left, key=lambda position: _drawn(proposal.id, person, position), default=None)


def left_side(proposal: Proposal, person: str, position: int) -> Side:
    """Whose answer stands on the left: either is as likely, and the page does not say."""
    return "setting" if _drawn(proposal.id, person, position) % 2 else "baseline"


def _drawn(*of: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(of).encode()).digest()[-8:], "big")
