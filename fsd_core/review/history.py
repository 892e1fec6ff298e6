"""What follows from a use's log: its aliases, its proposals, and what was said of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from fsd_core.storage.records import LoggedEvent
from fsd_core.storage.review_events import (
    Act,
    AliasMoved,
    Judged,
    Proposed,
    Remarked,
    Requirements,
    UseDescribed,
    Verdict,
    Voted,
    Waived,
    Withdrawn,
)

State = Literal["open", "approved", "declined", "withdrawn"]


class Judgement(NamedTuple):
    who: str
    verdict: Verdict
    comment: str
    evidence: str
    at: datetime


class Waiver(NamedTuple):
    """Somebody's words for a requirement that the evidence does not meet or decide."""

    who: str
    words: str
    evidence: str
    at: datetime


@dataclass
class Proposal:
    """A setting proposed for a use, with all that was said of it."""

    id: str
    use_id: str
    setting: str
    author: str
    at: datetime
    requirements: Requirements
    runs: tuple[str, ...]
    baselines: tuple[str, ...]
    rationale: str
    state: State = "open"
    judgements: list[Judgement] = field(default_factory=list)
    waivers: dict[str, list[Waiver]] = field(default_factory=dict)
    """by requirement, oldest first"""
    remarks: list[LoggedEvent] = field(default_factory=list)
    """whose acts are ``Remarked``"""
    votes: dict[tuple[str, int, str], Voted] = field(default_factory=dict)
    """by run, position and person"""

    def waived(self, requirement: str, evidence: str) -> Waiver | None:
        """The latest words for a requirement, if they were said of this evidence."""
        said = self.waivers.get(requirement, ())
        return next((waiver for waiver in reversed(said) if waiver.evidence == evidence), None)


class ProposalStatus(NamedTuple):
    """Who stands where on a proposal: of each reviewer the latest verdict counts."""

    approved_by: tuple[str, ...]
    stale: tuple[str, ...]
    """approvals of other evidence than there is now"""
    expired: tuple[str, ...]
    against: tuple[str, ...]
    """who asks for changes or declines"""
    needed: int
    """approvals in all"""

    @property
    def enough(self) -> bool:
        return len(self.approved_by) >= self.needed and not self.against


class AliasState(NamedTuple):
    """Which setting an alias names, and the act that made it so."""

    setting: str | None
    moved: LoggedEvent


@dataclass
class Use:
    """What settings are wanted for, such as ``GSM8K-like traffic on one L4``."""

    id: str
    log: tuple[LoggedEvent, ...]
    name: str = ""
    description: str = ""
    requirements: Requirements = field(default_factory=Requirements)
    approvals: int = 1
    days: int | None = None
    aliases: dict[str, AliasState] = field(default_factory=dict)
    proposals: dict[str, Proposal] = field(default_factory=dict)

    @property
    def sequence(self) -> int:
        """Of its last act."""
        return self.log[-1].sequence

    def named(self, alias: str) -> str | None:
        """The setting that an alias names."""
        return self.aliases[alias].setting if alias in self.aliases else None

    @property
    def in_force(self) -> list[AliasMoved]:
        """The approvals that were not rolled back, oldest first: the last one is what is approved now."""
        stack: list[AliasMoved] = []
        for act in (logged.act for logged in self.log):
            if isinstance(act, AliasMoved) and act.alias == "approved":
                if act.proposal is None and stack:
                    stack.pop()
                else:
                    stack.append(act)
        return stack

    def about(self, proposal: str) -> list[LoggedEvent]:
        """The acts on one proposal."""
        return [logged for logged in self.log if logged.act.about == proposal]

    def standing(self, proposal: Proposal, evidence: str, at: datetime) -> ProposalStatus:
        """Who approves of a proposal whose evidence has this hash, at a moment."""
        latest = {judgement.who: judgement for judgement in proposal.judgements}
        approvals = [judgement for judgement in latest.values() if judgement.verdict == "approve"]
        stale = [one.who for one in approvals if one.evidence != evidence]
        expired = [one.who for one in approvals if one.who not in stale and self._expired(one, at)]
        valid = [one.who for one in approvals if one.who not in stale and one.who not in expired]
        against = [one.who for one in latest.values() if one.verdict != "approve"]
        return ProposalStatus(tuple(valid), tuple(stale), tuple(expired), tuple(against), self.approvals)

    def _expired(self, judgement: Judgement, at: datetime) -> bool:
        return self.days is not None and at > judgement.at + timedelta(days=self.days)


def uses(log: Iterable[LoggedEvent]) -> list[Use]:
    """Every use of a log, in the order in which they were made."""
    grouped: dict[str, list[LoggedEvent]] = {}
    for logged in log:
        grouped.setdefault(logged.use_id, []).append(logged)
    return [use(id, acts) for id, acts in grouped.items()]


def use(id: str, log: Sequence[LoggedEvent]) -> Use:
    """The use as its acts, oldest first, have made it."""
    found = Use(id, tuple(log))
    for logged in log:
        _apply(found, logged)
    return found


def _apply(use: Use, logged: LoggedEvent) -> None:
    act: Act = logged.act
    if isinstance(act, UseDescribed):
        use.name, use.description, use.requirements = act.name, act.description, act.requirements
        use.approvals, use.days = act.approvals, act.days
    elif isinstance(act, AliasMoved):
        use.aliases[act.alias] = AliasState(act.setting, logged)
        if act.alias == "approved" and act.proposal in use.proposals:
            use.proposals[act.proposal].state = "approved"
    elif isinstance(act, Proposed):
        use.proposals[act.proposal] = Proposal(
            act.proposal, use.id, act.setting, logged.who, logged.at, act.requirements, act.runs, act.baselines,
            act.rationale,
        )  # fmt: skip
    else:
        _discuss(use.proposals[act.proposal], logged)


def _discuss(proposal: Proposal, logged: LoggedEvent) -> None:
    act = logged.act
    if isinstance(act, Waived):
        said = Waiver(logged.who, act.words, act.evidence, logged.at)
        proposal.waivers.setdefault(act.requirement, []).append(said)
    elif isinstance(act, Remarked):
        proposal.remarks.append(logged)
    elif isinstance(act, Judged):
        proposal.judgements.append(Judgement(logged.who, act.verdict, act.comment, act.evidence, logged.at))
        if act.verdict == "decline":
            proposal.state = "declined"
    elif isinstance(act, Withdrawn):
        proposal.state = "withdrawn"
    elif isinstance(act, Voted):
        proposal.votes[act.run, act.position, logged.who] = act
