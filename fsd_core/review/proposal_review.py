"""A proposal with all that its verdict rests on: the evidence as it stands now, what is open, who approves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from fsd_core.review.evidence import Evidence, evidence, evidence_hash, overall
from fsd_core.review.history import Proposal, ProposalStatus, Use
from fsd_core.review.pooling import on_fresh_prompts
from fsd_core.storage.review_events import Requirements

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


class ProposalReview(NamedTuple):
    """A proposal with its use and all that its verdict rests on, as it stands now."""

    use: Use
    proposal: Proposal
    evidence: list[Evidence]
    missing: tuple[str, ...]
    """runs of its evidence that were deleted"""
    hash: str
    """of the evidence"""
    open_requirements: tuple[str, ...]
    """not met or undecided, and not waived by anybody"""
    standing: ProposalStatus


def case_of(repository: Repository, use: Use, proposal: Proposal) -> ProposalReview:
    """The proposal with its evidence judged anew."""
    found = {run.id: run for run in repository.runs([*proposal.runs, *proposal.baselines], limit=None)}
    runs = on_fresh_prompts(repository, (found[id] for id in proposal.runs if id in found))
    baselines = [found[id] for id in proposal.baselines if id in found]
    missing = tuple(id for id in (*proposal.runs, *proposal.baselines) if id not in found)
    prompts = repository.prompts(run.id for run in found.values() if run.metrics)
    judged = evidence(proposal.requirements, runs, baselines, prompts) if baselines else []
    hash = evidence_hash(proposal.requirements, runs, baselines)
    outcomes = overall(judged)
    still_open = tuple(
        name
        for name in asked(proposal.requirements)
        if outcomes.get(name, "undecided") != "met" and proposal.waived(name, hash) is None
    )
    return ProposalReview(
        use, proposal, judged, missing, hash, still_open, use.standing(proposal, hash, datetime.now(UTC))
    )


def asked(requirements: Requirements) -> list[str]:
    """The requirements that ask for something, by name."""
    return [name for name in Requirements.model_fields if getattr(requirements, name) is not None]
