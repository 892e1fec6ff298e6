"""The approval in force for a use, as the review log has it: how long it lasts, and a proposal beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fsd_core.errors import Overtaken, UnfitEvidence, UnknownName, WrongState
from fsd_core.models.model_pairs import pair_title
from fsd_core.review import history
from fsd_core.review.evidence import (
    REQUIREMENT_TITLES,
    RequirementCheck,
    certain_weights,
    on_fresh_prompts,
    overall,
    weights,
)
from fsd_core.review.history import (
    Proposal,
    ProposalReview,
    Use,
    judged_evidence,
    measured_runs,
    requirement_names,
    review_of,
)
from fsd_core.roles import Person
from fsd_core.storage.review_events import AliasMoved, ReviewEvent
from fsd_core.texts import checked_key

if TYPE_CHECKING:
    from fsd_core.storage.records import LoggedEvent, RunView
    from fsd_core.storage.repository import Repository
    from fsd_core.storage.review_events import Requirements


LONGEST_USE_ID = 64


class ReviewLog:
    """The review log of one database."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository

    def uses(self) -> list[Use]:
        """Return every use, in the order of creation."""
        return history.uses_of(self.repository.review_log())

    def labels(self, uses: Sequence[Use]) -> dict[str, str]:
        """Return the labels of the settings in the uses, each with its pair, by setting id."""
        ids = {proposal.setting for use in uses for proposal in use.proposals.values()}
        names = self.repository.setting_names(ids)
        return {id: f"{label} · {pair_title(pair)}" for id, (label, pair) in names.items()}

    def use(self, id: str) -> Use:
        log = self.repository.review_log(id)
        if not log:
            raise UnknownName(
                f"There is no use '{id[:LONGEST_USE_ID]}': the link is incomplete, or of another database."
            )
        return history.use(id, log)

    def approved(self, use: Use) -> str:
        """Return the id of the approved setting of a use. Raises ``UnknownName`` if none is approved."""
        if (setting := use.named("approved")) is None:
            raise unapproved(use)
        return setting

    def approved_weights(self, use: Use) -> dict[str, str]:
        """Return the measured weights of the approved setting by role; empty if they were not recorded."""
        return self._weights_of(use, use.in_force[-1]) if use.in_force else {}

    def _weights_of(self, use: Use, approval: AliasMoved) -> dict[str, str]:
        """Return the weights in the approval. An approval by an earlier version has none, so those of its runs count
        while they exist."""
        proposal = use.proposals.get(approval.proposal or "")
        if approval.weights or proposal is None:
            return approval.weights
        return weights(self.repository.runs(proposal.runs, limit=None))

    def review(self, proposal_id: str) -> ProposalReview:
        """Return a proposal with its evidence checked again."""
        for use in self.uses():
            if proposal_id in use.proposals:
                return review_of(self.repository, use, use.proposals[proposal_id])
        raise UnknownName(f"There is no proposal '{proposal_id[:32]}': the link is incomplete, or of another database.")

    def _stored(self, key: str | None, use_id: str, person: Person, act: Mapping[str, Any]) -> LoggedEvent | None:
        """Return what an act was stored as, if it was sent before."""
        if key is None:
            return None
        return self.repository.stored_event(checked_key(key), use_id, person.name, act)

    def _append(
        self, use_id: str, person: Person, events: Sequence[ReviewEvent], seen: int, key: str | None = None
    ) -> LoggedEvent:
        try:
            return self.repository.append_events(use_id, person, events, seen, key)
        except Overtaken:  # between reading and writing
            use = self.use(use_id)
            if (proposal := use.proposals.get(events[0].about or "")) and proposal.state != "open":
                raise WrongState(closed_text(proposal)) from None
            raise Overtaken(news_text(use.log[seen:])) from None

    def _append_last(self, use_id: str, person: Person, event: ReviewEvent, key: str | None) -> None:
        """Append an event that conflicts with no other, after whatever the log holds."""
        while True:
            try:
                self.repository.append_events(use_id, person, [event], self.use(use_id).sequence, key)
            except Overtaken:
                continue
            return


def unapproved(use: Use) -> UnknownName:
    """Return the error that nothing is approved for a use: yet, or since somebody took it back."""
    if (moved := use.aliases.get("approved")) is None:
        return UnknownName(f"Nothing is approved for the use '{use.id}' yet.")
    return UnknownName(
        f"Nothing is in force for the use '{use.id}': {moved.moved.who} took back what was approved, on "
        f"{moved.moved.at:%Y-%m-%d}."
    )


def closed_text(proposal: Proposal) -> str:
    """Return why a proposal takes no more acts, and what leads on."""
    more = "its use says what is in force, and the setting's page proposes it anew"
    return f"This proposal is {proposal.state}, so nothing is decided on it any more: {more}."


def news_text(entries: Sequence[LoggedEvent]) -> str:
    names = ", ".join(list(dict.fromkeys(logged.who for logged in entries))[:3])
    return f"Since this page was shown {names} acted here: look at what is new, and say it again."


def setting_of(repository: Repository, runs: Sequence[str], baselines: Sequence[str]) -> str:
    """Return the setting of the runs. Raises ``InvalidSetting`` for runs that cannot be evidence."""
    if not runs or not baselines:
        raise UnfitEvidence("A proposal rests on measured runs: choose at least one, and one baseline.")
    by_id = {run.id: run for run in repository.runs([*runs, *baselines], limit=None)}
    if unknown := [id for id in (*runs, *baselines) if id not in by_id]:
        raise UnknownName(f"There is no run '{unknown[0][:32]}': it was deleted.")
    if unmeasured := [run for run in by_id.values() if not run.metrics]:
        raise UnfitEvidence(f"The run {_name(unmeasured[0])} has no figures yet: wait for its end.")
    if elsewhere := [run for run in by_id.values() if run.measured_elsewhere]:
        raise UnfitEvidence(
            f"The figures of {_name(elsewhere[0])} were measured elsewhere, and nothing here can verify them: choose "
            "runs that were measured here."
        )
    settings = {by_id[id].setting_id for id in runs}
    if len(settings) > 1:
        raise UnfitEvidence("These runs are of several settings: propose one of them.")
    (setting,) = settings
    fresh = {run.id for run in on_fresh_prompts(repository, (by_id[id] for id in runs))}
    if choosing := [by_id[id] for id in runs if id not in fresh]:
        raise UnfitEvidence(
            f"The run {_name(choosing[0])} helped to choose the setting in its calibration, so it says too much of it: "
            "choose runs on fresh prompts."
        )
    if any(by_id[id].setting_id == setting for id in baselines):
        raise UnfitEvidence("A baseline is of another setting than the one proposed: choose the target alone or SD.")
    if len({run.pair for run in by_id.values()}) > 1:
        raise UnfitEvidence("The runs and the baseline are of different pairs: choose runs of one pair.")
    certain_weights(by_id.values())
    return setting


def _name(run: RunView) -> str:
    return f"{run.label} ({run.id[:8]})"


Standing = Literal["intact", "changed", "deleted"]


@dataclass(frozen=True)
class Approval:
    """The approval of a use that is in force, as of a moment."""

    setting: str
    expires_at: datetime | None
    """``None``: it lasts for ever"""
    expired: bool
    evidence: Standing
    """against what was approved: the same, measured again or otherwise changed, or some of its runs deleted"""
    stale: bool
    """whether the use asks for something else since, or for more people"""
    requirements: Requirements | None
    """that it was approved for; ``None`` if its proposal is not in the log"""
    note: str = ""
    """that another version of the reading scored its answers than the one in use; empty if none did"""

    @property
    def doubts(self) -> list[str]:
        """Sentences on why it should not be relied on; empty for a sound one."""
        told = []
        if self.expired and self.expires_at is not None:
            told.append(f"The approval expired on {self.expires_at:%Y-%m-%d}: have it reviewed again.")
        if self.stale:
            told.append("What the use asks for was changed since it was approved: propose it again.")
        if self.evidence == "deleted":
            told.append("Runs that it was approved on were deleted: measure it again and propose that.")
        if self.evidence == "changed":
            told.append("Its evidence has changed since it was approved: look at its proposal, and approve it again.")
        return told

    def as_json(self) -> dict[str, Any]:
        return {
            "expires_at": self.expires_at and self.expires_at.isoformat(),
            "expired": self.expired,
            "evidence": self.evidence,
            "stale": self.stale,
            "requirements": self.requirements and self.requirements.as_json(),
            "note": self.note,
        }


def approval_of(repository: Repository, use: Use, at: datetime | None = None) -> Approval | None:
    """Return the approval in force for a use at a moment, now by default; ``None`` if nothing is approved."""
    if use.named("approved") is None or not use.in_force:
        return None
    moved, moment = use.in_force[-1], at or datetime.now(UTC)
    proposal = use.proposals.get(moved.proposal or "")
    expires_at = expiry_of(use)
    standing, note = ("changed", "") if proposal is None else _standing(repository, proposal, moved.evidence)
    return Approval(
        str(moved.setting), expires_at, expires_at is not None and moment > expires_at, standing,
        proposal is not None and use.asks_more_than(proposal.approved_when),
        None if proposal is None else proposal.requirements, note,
    )  # fmt: skip


def expiry_of(use: Use) -> datetime | None:
    """Return when the approval in force for a use expires or expired: when fewer verdicts are left than the use needs.
    ``None`` if there is none, or it lasts."""
    moved = use.in_force[-1] if use.named("approved") and use.in_force else None
    proposal = use.proposals.get(moved.proposal or "") if moved else None
    if moved is None or proposal is None or use.days is None:
        return None
    given = proposal.verdicts(moved.evidence)
    times = sorted((one.at for one in given if one.verdict == "approve"), reverse=True)
    return (times[min(use.approvals, len(times)) - 1] if times else proposal.at) + timedelta(days=use.days)


def _standing(repository: Repository, proposal: Proposal, approved: str | None) -> tuple[Standing, str]:
    """Return the standing of the evidence, and the note on how its answers were read."""
    runs, baselines, deleted = measured_runs(repository, proposal)
    if deleted:
        return "deleted", ""
    hash, note = judged_evidence(proposal, runs, baselines)
    return ("intact", note) if hash == approved else ("changed", "")


@dataclass(frozen=True)
class UseCheck:
    """Whether a setting may serve a use: what a pipeline asks before it deploys."""

    use: str
    setting: str
    approved: bool
    approval: Approval | None
    """of this setting"""
    requirements: tuple[tuple[RequirementCheck, str], ...]
    """each requirement that the use sets now, with the reason of whoever waived it, or empty"""

    @property
    def reasons(self) -> list[str]:
        """Sentences on why it does not pass; empty if it does."""
        told = [] if self.approved else ["This setting is not approved for the use."]
        told += self.approval.doubts if self.approval else []
        return told + [
            f"{REQUIREMENT_TITLES[check.requirement]} is {check.outcome}: {check.text}"
            for check, waived in self.requirements
            if check.outcome != "met" and not waived
        ]

    @property
    def passes(self) -> bool:
        return not self.reasons

    def as_json(self) -> dict[str, Any]:
        return {
            "use": self.use,
            "setting": self.setting,
            "pass": self.passes,
            "approved": self.approved,
            "approval": self.approval and self.approval.as_json(),
            "requirements": [check._asdict() | {"waived": waived or None} for check, waived in self.requirements],
            "reasons": self.reasons,
        }


def check_setting(repository: Repository, use: Use, setting: str = "") -> UseCheck:
    """Check a setting, by default the approved one, against a use as it is now. Raises ``UnknownName``."""
    approval = approval_of(repository, use)
    id = setting or (approval.setting if approval else "")
    if not id:
        raise unapproved(use)
    proposals = [proposal for proposal in use.proposals.values() if proposal.setting == id]
    if not proposals:
        raise UnknownName(f"The setting '{id[:32]}' was never proposed for the use '{use.id}': propose it first.")
    review = review_of(repository, use, proposals[-1], use.requirements)
    approved = approval is not None and approval.setting == id
    return UseCheck(use.id, id, approved, approval if approved else None, checks_of(review, use.requirements))


def checks_of(review: ProposalReview, requirements: Requirements) -> tuple[tuple[RequirementCheck, str], ...]:
    """Return the worst result of each requirement over all of a proposal's evidence, with its waiver."""
    findings: Sequence[RequirementCheck] = [finding for item in review.evidence for finding in item.findings]
    outcomes = overall(review.evidence)
    checks = []
    for name in requirement_names(requirements):
        outcome = outcomes.get(name, "undecided")
        text = next((f.text for f in findings if (f.requirement, f.outcome) == (name, outcome)), "not measured")
        same = getattr(review.proposal.requirements, name) == getattr(requirements, name)
        waiver = review.proposal.waived(name, review.hash) if same else None  # of the requirement at that time
        checks.append((RequirementCheck(name, outcome, text), waiver.reason if waiver else ""))
    return tuple(checks)


class RequirementPair(NamedTuple):
    """One requirement of the proposal, for the candidate and for the approved setting."""

    candidate: RequirementCheck
    approved: RequirementCheck


class BesideApproved(NamedTuple):
    """The approved proposal of a use, beside another proposal of it."""

    proposal: Proposal
    """that was approved"""
    requirements: tuple[RequirementPair, ...]
    """each side against its own baseline"""
    candidate_runs: tuple[str, ...]
    """ids of the runs to read; empty where both were never measured on one task with one seed"""
    approved_runs: tuple[str, ...]


def beside_approved(repository: Repository, review: ProposalReview) -> BesideApproved | None:
    """Return the approved proposal beside another one; ``None`` if no setting or this one is approved."""
    use = review.use
    if not use.in_force or use.named("approved") in (None, review.proposal.setting):
        return None
    approved = use.proposals.get(use.in_force[-1].proposal or "")
    if approved is None:
        return None
    asked = review.proposal.requirements
    other = review_of(repository, use, approved, asked)
    pairs = zip(checks_of(review, asked), checks_of(other, asked), strict=True)
    requirements = tuple(RequirementPair(ours, theirs) for (ours, _), (theirs, _) in pairs)
    for ours in review.evidence:
        for theirs in other.evidence:
            if (ours.run.task, ours.run.seed) == (theirs.run.task, theirs.run.seed):
                runs = (tuple(run.id for run in pool.runs) for pool in (ours.setting_pool, theirs.setting_pool))
                return BesideApproved(approved, requirements, *runs)
    return BesideApproved(approved, requirements, (), ())
