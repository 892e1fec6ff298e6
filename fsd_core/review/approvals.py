"""Validity of the approval in force for a use: how long it lasts, and whether its evidence still stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from fsd_core.errors import UnknownName
from fsd_core.review.evidence import REQUIREMENT_TITLES, RequirementCheck, overall
from fsd_core.review.log_access import unapproved
from fsd_core.review.proposal_review import ProposalReview, judged_evidence, measured_runs, requirement_names, review_of

if TYPE_CHECKING:
    from fsd_core.review.history import Proposal, Use
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.review_events import Requirements

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
