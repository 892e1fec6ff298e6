"""API endpoints of reviews: read, propose and comment. Only people give verdicts, on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.ui.endpoint import Endpoint
from dashboard.ui.signed_in import person_of
from fsd_core.review.approvals import approval_of, check_setting
from fsd_core.review.delivery import deliver, described
from fsd_core.review.history import Proposal, Use
from fsd_core.review.proposal_review import ProposalReview
from fsd_core.review.review_service import ReviewService
from fsd_core.storage.review_events import Commented

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def review_endpoints(repository: Repository, root_path: str) -> list[Endpoint]:
    service = ReviewService(repository)

    def list_uses() -> list[dict[str, Any]]:
        """Return the uses that settings are wanted for, with their requirements.

        Each has the settings that are its candidate and approved for it.
        """
        return [_use(use) for use in service.uses()]

    def read_use(use: str) -> dict[str, Any]:
        """Return a use with its proposals.

        Args:
            use: its id, from list_uses
        """
        view = service.use(use)
        return {**_use(view), "proposals": [_proposal(proposal) for proposal in view.proposals.values()]}

    def read_verdict(proposal: str) -> dict[str, Any]:
        """Return a proposal with its evidence for each requirement (met, not met or undecided, with intervals).

        It also has the open requirements, who approves of it, and the comments.

        Args:
            proposal: its id, from propose or read_use
        """
        return _review(service.review(proposal), root_path)

    def approved_setting(use: str, form: str = "") -> dict[str, Any]:
        """Return the setting that is approved for a use. An engine that cannot run it is refused, with the reason.

        Args:
            use: its id
            form: python, json, yaml, vllm or sglang for its text. Default: its options alone
        """
        view = service.use(use)
        setting = repository.setting(service.approved(view)).config
        weights = service.approved_weights(view)
        state = approval_of(repository, view)
        answer = described(setting, weights) | {"weights": weights, "approval": state and state.as_json()}
        return answer | ({"form": form, "text": deliver(setting, form, weights)} if form else {})

    def check_use(use: str, setting: str = "") -> dict[str, Any]:
        """Return whether a setting may serve a use now, with each requirement, its approval and its evidence.

        Args:
            use: its id
            setting: id of the setting. Default: the approved one
        """
        return check_setting(repository, service.use(use), setting).as_json()

    def propose(
        use: str, runs: list[str], baselines: list[str], request: gr.Request, rationale: str = "", key: str = ""
    ) -> dict[str, Any]:
        """Propose the setting of measured runs as the candidate of a use. Needs the role author.

        Args:
            use: id of the use
            runs: ids of the runs that are evidence, all of one setting
            baselines: ids of the runs to compare them with, on the same prompts
            rationale: why
            key: 32 hexadecimal digits, random for each proposal. Sent again with the same key, it is made once
        """
        id = service.propose(person_of(request), use, runs, baselines, rationale, key=key or None)
        return _review(service.review(id), root_path)

    def comment(proposal: str, words: str, request: gr.Request, key: str = "") -> dict[str, Any]:
        """Comment on a proposal. Needs the role author.

        Args:
            proposal: its id
            words: the comment
            key: 32 hexadecimal digits, random for each comment. Sent again with the same key, it is added once
        """
        service.comment(person_of(request), service.review(proposal), words, key=key or None)
        return _review(service.review(proposal), root_path)

    return [list_uses, read_use, read_verdict, approved_setting, check_use, propose, comment]


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
        "owner": proposal.owner,
        "at": proposal.at.isoformat(),
        "state": proposal.state,
        "rationale": proposal.rationale,
        "requirements": proposal.requirements.as_json(),
        "runs": list(proposal.runs),
        "baselines": list(proposal.baselines),
    }


def _review(review: ProposalReview, root_path: str) -> dict[str, Any]:
    return {
        **_proposal(review.proposal),
        "evidence": [
            {
                "run": item.run.id,
                "baseline": item.baseline.id,
                "pair": item.run.pair,
                "runs": [run.id for run in item.setting_pool.runs],
                "baselines": [run.id for run in item.baseline_pool.runs],
                "prompts": item.shared,
                "calibration": item.setting_pool.calibration,
                "findings": [
                    {"requirement": check.requirement, "outcome": check.outcome, "told": check.text}
                    for check in item.findings
                ],
            }
            for item in review.evidence
        ],
        "missing_runs": list(review.missing),
        "open_requirements": list(review.open_requirements),
        "standing": {
            key: list(value) if isinstance(value, tuple) else value for key, value in review.status._asdict().items()
        },
        "judgements": [
            {"who": item.who, "verdict": item.verdict, "comment": item.comment, "at": item.at.isoformat()}
            for item in review.proposal.judgements
        ],
        "comments": [
            {"who": logged.who, "at": logged.at.isoformat(), "words": logged.event.words}
            for logged in review.proposal.comments
            if isinstance(logged.event, Commented)
        ],
        "page": f"{root_path}/review?proposal={review.proposal.id}",
    }
