"""What programs may do in a review: read, propose and comment. A verdict is a person's, on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.ui.endpoint import Endpoint
from dashboard.ui.signed_in import person_of
from fsd_core.review.delivery import deliver, described
from fsd_core.review.history import Proposal, Use
from fsd_core.review.proposal_review import ProposalReview
from fsd_core.review.review_service import ReviewService
from fsd_core.storage.review_events import Remarked

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def review_endpoints(repository: Repository) -> list[Endpoint]:
    desk = ReviewService(repository)

    def list_uses() -> list[dict[str, Any]]:
        """What settings are wanted for, with the requirements and the settings that are candidate and approved."""
        return [_use(use) for use in desk.uses()]

    def read_use(use: str) -> dict[str, Any]:
        """A use with its proposals.

        Args:
            use: its id, as list_uses gives it
        """
        found = desk.use(use)
        return {**_use(found), "proposals": [_proposal(proposal) for proposal in found.proposals.values()]}

    def read_verdict(proposal: str) -> dict[str, Any]:
        """A proposal with its evidence against each requirement (met, not met or undecided, with intervals), what is
        still open, who approves of it, and the comments.

        Args:
            proposal: its id, as propose and read_use give it
        """
        return _case(desk.case(proposal))

    def approved_setting(use: str, form: str = "") -> dict[str, Any]:
        """The setting that is approved for a use.

        Args:
            use: its id
            form: python, json, yaml, vllm or sglang for its text; left out, its options alone
        """
        found = desk.use(use)
        setting = repository.setting(desk.approved(found)).config
        weights = desk.approved_weights(found)
        told = described(setting, weights) | {"weights": weights}
        return told | ({"form": form, "text": deliver(setting, form, weights)} if form else {})

    def propose(
        use: str, runs: list[str], baselines: list[str], request: gr.Request, rationale: str = ""
    ) -> dict[str, Any]:
        """Proposes the setting of measured runs for a use, as its candidate. Needs the role author.

        Args:
            use: id of the use
            runs: ids of the runs that speak for the setting, all of it
            baselines: ids of the runs that they are held against, on the same prompts
            rationale: why
        """
        return _case(desk.case(desk.propose(person_of(request), use, runs, baselines, rationale)))

    def comment(proposal: str, words: str, request: gr.Request) -> dict[str, Any]:
        """Comments on a proposal. Needs the role author.

        Args:
            proposal: its id
            words: the comment
        """
        desk.remark(person_of(request), desk.case(proposal), words)
        return _case(desk.case(proposal))

    return [list_uses, read_use, read_verdict, approved_setting, propose, comment]


def _use(use: Use) -> dict[str, Any]:
    return {
        "use": use.id,
        "name": use.name,
        "description": use.description,
        "requirements": use.requirements.as_json(),
        "approvals_needed": use.approvals,
        "candidate": use.named("candidate"),
        "approved": use.named("approved"),
    }


def _proposal(proposal: Proposal) -> dict[str, Any]:
    return {
        "proposal": proposal.id,
        "use": proposal.use_id,
        "setting": proposal.setting,
        "author": proposal.author,
        "at": proposal.at.isoformat(),
        "state": proposal.state,
        "rationale": proposal.rationale,
        "requirements": proposal.requirements.as_json(),
        "runs": list(proposal.runs),
        "baselines": list(proposal.baselines),
    }


def _case(case: ProposalReview) -> dict[str, Any]:
    return {
        **_proposal(case.proposal),
        "evidence": [
            {
                "run": one.run.id,
                "baseline": one.baseline.id,
                "runs": [run.id for run in one.ours.runs],
                "baselines": [run.id for run in one.theirs.runs],
                "prompts": one.shared,
                "calibration": one.ours.calibration,
                "findings": [found._asdict() for found in one.findings],
            }
            for one in case.evidence
        ],
        "missing_runs": list(case.missing),
        "open_requirements": list(case.open_requirements),
        "standing": {
            key: list(value) if isinstance(value, tuple) else value for key, value in case.standing._asdict().items()
        },
        "judgements": [
            {"who": one.who, "verdict": one.verdict, "comment": one.comment, "at": one.at.isoformat()}
            for one in case.proposal.judgements
        ],
        "comments": [
            {"who": logged.who, "at": logged.at.isoformat(), "words": logged.act.words}
            for logged in case.proposal.remarks
            if isinstance(logged.act, Remarked)
        ],
        "page": f"/review?proposal={case.proposal.id}",
    }
