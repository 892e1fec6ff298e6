"""A proposal with everything its verdict rests on: the current evidence, open requirements and approvals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from fsd_core.analysis.reading_versions import note_on_verdict
from fsd_core.review.evidence import Evidence, evidence, evidence_hash, overall
from fsd_core.review.history import Proposal, ProposalStatus, Use
from fsd_core.review.pooling import on_fresh_prompts
from fsd_core.storage.review_events import Requirements

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunView


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
