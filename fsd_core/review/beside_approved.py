"""A proposal beside what is approved for its use: requirement by requirement, and the runs to read prompt by prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fsd_core.review.approvals import checks_of
from fsd_core.review.proposal_review import review_of

if TYPE_CHECKING:
    from fsd_core.review.evidence import RequirementCheck
    from fsd_core.review.history import Proposal
    from fsd_core.review.proposal_review import ProposalReview
    from fsd_core.storage.database.repository import Repository


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
