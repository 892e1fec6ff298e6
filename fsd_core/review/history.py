"""A use's state derived from its log: its aliases, and its proposals with all that their verdicts rest on."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

from fsd_core.analysis.comparability import note_on_verdict
from fsd_core.errors import NotApplicable, Refused, UnknownChoice
from fsd_core.review.evidence import Evidence, evidence, evidence_hash, on_fresh_prompts, overall
from fsd_core.roles import Person, checked_name, folded, same_name
from fsd_core.storage.records import LoggedEvent
from fsd_core.storage.review_events import (
    AliasMoved,
    Commented,
    EvidenceChosen,
    Judged,
    Proposed,
    Requirements,
    ReviewersAsked,
    ReviewEvent,
    UseDescribed,
    Verdict,
    Voted,
    VotingStopped,
    Waived,
    Withdrawn,
)

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView
    from fsd_core.storage.repository import Repository


State = Literal["open", "approved", "replaced", "taken back", "declined", "withdrawn"]
"""of a proposal; ``approved``: in force, ``replaced``: by a later approval, which a roll-back may take back"""
Awaited = Literal["verdict", "changes"]
"""what an open proposal waits for"""


class Judgement(NamedTuple):
    who: str
    verdict: Verdict
    comment: str
    evidence: str
    at: datetime
    sequence: int = 0
    """number of its log entry"""


class Waiver(NamedTuple):
    """A written waiver of a requirement that the evidence does not meet or decide."""

    who: str
    reason: str
    evidence: str
    at: datetime


@dataclass
class Proposal:
    """A setting proposed for a use, with its discussion."""

    id: str
    use_id: str
    setting: str
    author: str
    at: datetime
    requirements: Requirements
    runs: tuple[str, ...]
    baselines: tuple[str, ...]
    rationale: str
    owner: str | None = None
    """of the program that proposed it"""
    state: State = "open"
    judgements: list[Judgement] = field(default_factory=list)
    waivers: dict[str, list[Waiver]] = field(default_factory=dict)
    """by requirement, oldest first"""
    said: list[LoggedEvent] = field(default_factory=list)
    """log entries of all that is said to it: comments, verdicts, waivers, evidence chosen, its end"""
    votes: dict[tuple[str, int, str], Voted] = field(default_factory=dict)
    """by run, position and folded name"""
    approved_when: UseDescribed | None = None
    """description and requirements of the use at the approval"""
    reviewers: dict[str, int] = field(default_factory=dict)
    """who is asked for a verdict, and since which log entry"""
    resumed: int = 0
    """number of the log entry by which its author last went on with it"""
    left: int = 0
    """number of the log entry by which its author last proposed another setting instead"""
    stopped: set[str] = field(default_factory=set)
    """folded names of those who vote no more"""

    def is_by(self, name: str) -> bool:
        """Whether this is somebody's own proposal: made by them, or by a program of theirs."""
        return same_name(name, self.author) or (self.owner is not None and same_name(name, self.owner))

    @property
    def comments(self) -> list[LoggedEvent]:
        """Log entries of ``Commented`` events."""
        return [logged for logged in self.said if isinstance(logged.event, Commented)]

    def said_as(self, number: int | None) -> int | None:
        """Return the number in the log of what stands on the page under a number from 1. Raises ``UnknownChoice``."""
        if number is not None and not 0 < number <= len(self.said):
            raise UnknownChoice(f"There is no #{number} to answer: a number stands beside all that was said.")
        return None if number is None else self.said[number - 1].sequence

    @property
    def waits_for(self) -> dict[str, Awaited]:
        """For whom an open proposal waits, and for what: a verdict of who was asked and gave none since, changes by
        its author or a program's owner that were asked for, and once these acted, a verdict of who asked for them."""
        if self.state != "open":
            return {}
        given = {folded(verdict.who): verdict for verdict in self.judgements}
        asked = {folded(name): (name, since) for name, since in self.reviewers.items()}
        against = [verdict for verdict in given.values() if verdict.verdict == "request changes"]
        asked |= {folded(one.who): (one.who, self.resumed) for one in against if one.sequence < self.resumed}
        waits: dict[str, Awaited] = {
            name: "verdict" for key, (name, since) in asked.items() if key not in given or given[key].sequence < since
        }
        if any(one.sequence > max(self.resumed, self.left) for one in against):
            waits[self.owner or self.author] = "changes"
        return waits

    def verdicts(self, evidence: str | None = None) -> list[Judgement]:
        """Return each person's latest verdict, of those given on evidence with this hash if it is named."""
        given = (entry for entry in self.judgements if evidence is None or entry.evidence == evidence)
        return list({folded(entry.who): entry for entry in given}.values())

    def has_vote(self, run: str, position: int, name: str) -> bool:
        """Whether somebody has voted on the prompt that a run answered at a position."""
        return (run, position, folded(name)) in self.votes

    def votes_no_more(self, name: str) -> bool:
        """Whether somebody has ended their vote."""
        return folded(name) in self.stopped

    def waived(self, requirement: str, evidence: str) -> Waiver | None:
        """Return the latest waiver of a requirement, if it refers to this evidence."""
        waivers = self.waivers.get(requirement, ())
        return next((waiver for waiver in reversed(waivers) if waiver.evidence == evidence), None)


class ProposalStatus(NamedTuple):
    """Reviewers by their position on a proposal. The latest verdict of each counts."""

    approved_by: tuple[str, ...]
    stale: tuple[str, ...]
    """who approved on different evidence"""
    expired: tuple[str, ...]
    against: tuple[str, ...]
    """who requested changes or declined"""
    needed: int
    """required number of approvals"""

    @property
    def enough(self) -> bool:
        return len(self.approved_by) >= self.needed and not self.against


class AliasState(NamedTuple):
    """The setting that an alias names, and the log entry that set it."""

    setting: str | None
    moved: LoggedEvent


@dataclass
class Use:
    """A purpose for settings, such as ``GSM8K-like traffic on one L4``."""

    id: str
    log: tuple[LoggedEvent, ...]
    name: str = ""
    description: str = ""
    requirements: Requirements = field(default_factory=Requirements)
    approvals: int = 1
    days: int | None = None
    described_at: int = 0
    """sequence number of the log entry with its latest description"""
    aliases: dict[str, AliasState] = field(default_factory=dict)
    proposals: dict[str, Proposal] = field(default_factory=dict)
    in_force: list[AliasMoved] = field(default_factory=list)
    """Approvals that were not rolled back, oldest first. The last one is currently approved."""

    @property
    def sequence(self) -> int:
        """Sequence number of the last log entry."""
        return self.log[-1].sequence

    def named(self, alias: str) -> str | None:
        """Return the setting that an alias names."""
        return self.aliases[alias].setting if alias in self.aliases else None

    @property
    def described(self) -> UseDescribed:
        """The use's name, description, requirements and rules of approval."""
        return UseDescribed(
            name=self.name, description=self.description, requirements=self.requirements, approvals=self.approvals,
            days=self.days,
        )  # fmt: skip

    def description_at(self, sequence: int) -> UseDescribed | None:
        """Return the description in the log entry of this number, or ``None`` if it is another one."""
        events = (logged.event for logged in self.log if logged.sequence == sequence)
        return next((event for event in events if isinstance(event, UseDescribed)), None)

    def asks_more_than(self, former: UseDescribed | None) -> bool:
        """Whether an approval under a former description is stale: the requirements differ, or it takes more people."""
        return former is not None and (self.requirements != former.requirements or self.approvals > former.approvals)

    def about(self, proposal: str) -> list[LoggedEvent]:
        """Return the log entries on one proposal."""
        return [logged for logged in self.log if logged.event.about == proposal]

    def proposal_status(self, proposal: Proposal, evidence: str, at: datetime) -> ProposalStatus:
        """Return the reviewers' positions on a proposal at a time, for evidence with this hash."""
        latest = proposal.verdicts()
        approvals = [judgement for judgement in latest if judgement.verdict == "approve"]
        stale = [entry.who for entry in approvals if entry.evidence != evidence]
        expired = [entry.who for entry in approvals if entry.who not in stale and self._expired(entry, at)]
        valid = [entry.who for entry in approvals if entry.who not in stale and entry.who not in expired]
        against = [entry.who for entry in latest if entry.verdict != "approve"]
        return ProposalStatus(tuple(valid), tuple(stale), tuple(expired), tuple(against), self.approvals)

    def _expired(self, judgement: Judgement, at: datetime) -> bool:
        return self.days is not None and at > judgement.at + timedelta(days=self.days)


def uses_of(log: Iterable[LoggedEvent]) -> list[Use]:
    """Return every use of a log, in the order of creation."""
    grouped: dict[str, list[LoggedEvent]] = {}
    for logged in log:
        grouped.setdefault(logged.use_id, []).append(logged)
    return [use(id, entries) for id, entries in grouped.items()]


def use(id: str, log: Sequence[LoggedEvent]) -> Use:
    """Build a use from its log, oldest entry first."""
    result = Use(id, tuple(log))
    for logged in log:
        _apply(result, logged)
    *replaced, now = [event.proposal for event in result.in_force] or [None]
    for proposal in result.proposals.values():
        if proposal.state == "approved" and proposal.id != now:
            proposal.state = "replaced" if proposal.id in replaced else "taken back"
    return result


def _apply(use: Use, logged: LoggedEvent) -> None:
    event: ReviewEvent = logged.event
    if isinstance(event, UseDescribed):
        for proposal in use.proposals.values():
            if proposal.state == "open" and proposal.requirements == use.requirements != event.requirements:
                proposal.requirements = event.requirements
                proposal.reviewers = dict.fromkeys(proposal.reviewers, logged.sequence)
        use.name, use.description, use.requirements = event.name, event.description, event.requirements
        use.approvals, use.days = event.approvals, event.days
        use.described_at = logged.sequence
    elif isinstance(event, AliasMoved):
        use.aliases[event.alias] = AliasState(event.setting, logged)
        if event.alias == "approved" and event.proposal is None and use.in_force:
            if former := use.proposals.get(use.in_force.pop().proposal or ""):
                former.said.append(logged)
        elif event.alias == "approved":
            use.in_force.append(event)
            if event.proposal in use.proposals:
                use.proposals[event.proposal].state = "approved"
                use.proposals[event.proposal].approved_when = use.described
    elif isinstance(event, Proposed):
        for proposal in use.proposals.values():
            if proposal.is_by(logged.owner or logged.who):
                proposal.left = logged.sequence
        use.proposals[event.proposal] = Proposal(
            event.proposal, use.id, event.setting, logged.who, logged.at, event.requirements, event.runs,
            event.baselines, event.rationale, logged.owner, reviewers=dict.fromkeys(event.reviewers, logged.sequence),
        )  # fmt: skip
    else:
        _discuss(use.proposals[event.proposal], logged)


def _discuss(proposal: Proposal, logged: LoggedEvent) -> None:
    event = logged.event
    if isinstance(event, Judged | Waived | Commented | EvidenceChosen | Withdrawn):
        proposal.said.append(logged)
    if isinstance(event, EvidenceChosen) or (
        isinstance(event, Commented | ReviewersAsked) and proposal.is_by(logged.owner or logged.who)
    ):
        proposal.resumed = logged.sequence
    if isinstance(event, EvidenceChosen):
        proposal.runs, proposal.baselines = event.runs, event.baselines
        proposal.reviewers = dict.fromkeys(proposal.reviewers, logged.sequence)
    elif isinstance(event, Waived):
        waiver = Waiver(logged.who, event.words, event.evidence, logged.at)
        proposal.waivers.setdefault(event.requirement, []).append(waiver)
    elif isinstance(event, Judged):
        proposal.judgements.append(
            Judgement(logged.who, event.verdict, event.comment, event.evidence, logged.at, logged.sequence)
        )
        if event.verdict == "decline":
            proposal.state = "declined"
    elif isinstance(event, Withdrawn):
        proposal.state = "withdrawn"
    elif isinstance(event, Voted):
        proposal.votes[event.run, event.position, folded(logged.who)] = event
    elif isinstance(event, ReviewersAsked):
        proposal.reviewers = {name: proposal.reviewers.get(name, logged.sequence) for name in event.reviewers}
    elif isinstance(event, VotingStopped):
        proposal.stopped.add(folded(logged.who))


_MAY = ("reviewer", "admin")


def checked_reviewers(repository: Repository, names: Sequence[str], authors: Collection[str]) -> tuple[str, ...]:
    """Return the names of people to ask, each once, as they are written where people sign in with a password.

    Raises ``InvalidSetting`` for somebody who is not known there or may give no verdict, and ``Refused`` for one of the
    proposal's ``authors``. Where a proxy or a provider names people, any name is taken.
    """
    accounts = repository.users()
    checked: list[str] = []
    for given in names:
        name = checked_name(given)
        if any(same_name(name, author) for author in authors):
            raise Refused(f"{name} made the proposal, and nobody judges their own: ask somebody else.")
        account = next((account for account in accounts if same_name(account.name, name)), None)
        if accounts and account is None:
            raise UnknownChoice(f"There is no person '{name[:40]}': choose somebody who signs in here.")
        if account is not None and account.role not in _MAY:
            raise NotApplicable(f"{account.name} is {account.role} and gives no verdicts: ask a reviewer or an admin.")
        name = account.name if account else name
        if not any(same_name(name, other) for other in checked):
            checked.append(name)
    return tuple(checked)


def possible_reviewers(repository: Repository, authors: Collection[str] = ()) -> list[str]:
    """Return the people who may be asked, where people sign in with a password."""
    return [
        account.name
        for account in repository.users()
        if account.role in _MAY and not any(same_name(account.name, author) for author in authors)
    ]


def waiting_for(uses: Iterable[Use], person: Person) -> list[tuple[Use, Proposal, Awaited]]:
    """Return the proposals that wait for a person, for a verdict or for changes, the oldest first."""
    if not person.known or person.is_program:
        return []
    waiting = [
        (use, proposal, awaited)
        for use in uses
        for proposal in use.proposals.values()
        for name, awaited in proposal.waits_for.items()
        if same_name(name, person.name)
    ]
    return sorted(waiting, key=lambda one: one[1].at)


class WaitingCount:
    """How many proposals wait for somebody. The log is read again only when it has grown, since every open page
    asks."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._lock = threading.Lock()
        self._read: tuple[int, list[Use]] = -1, []

    def __call__(self, person: Person) -> int:
        if not person.known or person.is_program:
            return 0
        with self._lock:
            last = self._repository.last_review_event()
            if last != self._read[0]:
                self._read = last, uses_of(self._repository.review_log())
            uses = self._read[1]
        return len(waiting_for(uses, person))


class ProposalReview(NamedTuple):
    """A proposal with its use and the current basis of its verdict."""

    use: Use
    proposal: Proposal
    evidence: list[Evidence]
    missing: tuple[str, ...]
    """ids of deleted runs of its evidence"""
    hash: str
    """hash of the evidence"""
    open_requirements: tuple[str, ...]
    """not met or undecided, and not waived"""
    status: ProposalStatus
    note: str = ""
    """what is to be said of how the answers of an approved setting were read; empty if nothing is"""


def review_of(
    repository: Repository, use: Use, proposal: Proposal, requirements: Requirements | None = None
) -> ProposalReview:
    """Return the proposal with its evidence checked again, against its own requirements or against others."""
    asked = requirements or proposal.requirements
    runs, baselines, missing = measured_runs(repository, proposal)
    prompts = repository.prompts(run.id for run in (*runs, *baselines) if run.metrics)
    results = evidence(asked, runs, baselines, prompts, repository) if baselines else []
    hash, note = judged_evidence(proposal, runs, baselines)
    outcomes = overall(results)
    unresolved = tuple(
        name
        for name in requirement_names(asked)
        if outcomes.get(name, "undecided") != "met" and proposal.waived(name, hash) is None
    )
    return ProposalReview(
        use, proposal, results, missing, hash, unresolved, use.proposal_status(proposal, hash, datetime.now(UTC)), note
    )


def judged_evidence(proposal: Proposal, runs: Sequence[RunView], baselines: Sequence[RunView]) -> tuple[str, str]:
    """Return the hash of a proposal's evidence, and the note on an approval that stays as it was.

    It stays where another version of the reading has rescored its runs and nothing else has changed.
    """
    earlier = ([run.as_read_before for run in side] for side in (runs, baselines))
    now, before = (evidence_hash(proposal.requirements, *sides) for sides in ((runs, baselines), earlier))
    approved_on = {each.evidence for each in proposal.judgements if proposal.state == "approved"}
    hash = before if before in approved_on and now not in approved_on else now
    return hash, note_on_verdict([*runs, *baselines], rescored=hash != now) if hash in approved_on else ""


def measured_runs(repository: Repository, proposal: Proposal) -> tuple[list[RunView], list[RunView], tuple[str, ...]]:
    """Return the runs and baselines of a proposal that still exist, and the ids of those that were deleted."""
    by_id = {run.id: run for run in repository.runs([*proposal.runs, *proposal.baselines], limit=None)}
    runs = on_fresh_prompts(repository, (by_id[id] for id in proposal.runs if id in by_id))
    baselines = [by_id[id] for id in proposal.baselines if id in by_id]
    return runs, baselines, tuple(id for id in (*proposal.runs, *proposal.baselines) if id not in by_id)


def requirement_names(requirements: Requirements) -> list[str]:
    """Return the names of the requirements that are set."""
    return [name for name in Requirements.model_fields if getattr(requirements, name) is not None]
