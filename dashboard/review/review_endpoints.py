"""API endpoints of reviews: read, propose and comment. Only people give verdicts, on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.review.beside_record import beside_record
from dashboard.tables.prompt_pairs import Show
from dashboard.ui.endpoint import Endpoint
from dashboard.ui.signed_in import person_of
from fsd_core.errors import InvalidSetting
from fsd_core.review.approvals import approval_of, check_setting
from fsd_core.review.delivery import deliver, described
from fsd_core.review.history import Proposal, Use
from fsd_core.review.passages import Quoted, passage_json, quoted_passages
from fsd_core.review.proposal_review import ProposalReview
from fsd_core.review.review_service import ReviewService
from fsd_core.storage.review_events import Commented

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def review_endpoints(repository: Repository, root_path: str) -> list[Endpoint]:
    service = ReviewService(repository)

    def reviewed(proposal: str, request: gr.Request) -> dict[str, Any]:
        review = service.review(proposal)
        return _review(review, quoted_passages(repository, person_of(request), review), root_path)

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

    def read_verdict(proposal: str, request: gr.Request) -> dict[str, Any]:
        """Return a proposal with its evidence for each requirement (met, not met or undecided, with intervals).

        It also has the open requirements, who approves of it, and the comments.

        Args:
            proposal: its id, from propose or read_use
        """
        return reviewed(proposal, request)

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
        use: str,
        runs: list[str],
        baselines: list[str],
        request: gr.Request,
        rationale: str = "",
        key: str = "",
        reviewers: list[str] | None = None,
    ) -> dict[str, Any]:
        """Propose the setting of measured runs as the candidate of a use. Needs the role author.

        Args:
            use: id of the use
            runs: ids of the runs that are evidence, all of one setting
            baselines: ids of the runs to compare them with, on the same prompts
            rationale: why
            key: 32 hexadecimal digits, random for each proposal. Sent again with the same key, it is made once
            reviewers: names of people who are asked for a verdict
        """
        person, names = person_of(request), reviewers or []
        id = service.propose(person, use, runs, baselines, rationale, key=key or None, reviewers=names)
        return reviewed(id, request)

    def compare_with_approved(
        proposal: str, request: gr.Request, which: Show = "outcome", limit: int = 20, offset: int = 0
    ) -> dict[str, Any]:
        """Return a proposal beside what is approved for its use: each requirement, and prompt by prompt.

        Prompts that the caller has yet to vote on blind are counted in hidden and left out.

        Args:
            proposal: its id
            which: prompts of different outcome (outcome), different text (text), not solved by both (unsolved), marked,
                or all
            limit: number of prompts, 1 to 100
            offset: number of prompts to leave out before
        """
        return beside_record(repository, person_of(request), service.review(proposal), which, limit, offset)

    def comment(
        proposal: str,
        words: str,
        request: gr.Request,
        key: str = "",
        run: str = "",
        prompt: int = 0,
        quote: str = "",
        start: int = 0,
    ) -> dict[str, Any]:
        """Comment on a proposal. Needs the role author.

        Args:
            proposal: its id
            words: the comment
            key: 32 hexadecimal digits, random for each comment. Sent again with the same key, it is added once
            run: id of the run whose answer it is on. Default: it is on the whole proposal
            prompt: number of the answer's prompt, from 1
            quote: passage of the answer that it is on. Default: the whole answer
            start: character of the answer near which the passage begins, from 0
        """
        if bool(run) != bool(prompt) or prompt < 0 or (quote and not run):
            raise InvalidSetting("An answer has a run and a prompt from 1: name both, or neither.")
        service.comment(
            person_of(request), service.review(proposal), words, None, run or None, prompt - 1 if run else None,
            key or None, (start, quote) if quote else None,
        )  # fmt: skip
        return reviewed(proposal, request)

    def ask_reviewers(proposal: str, reviewers: list[str], request: gr.Request, key: str = "") -> dict[str, Any]:
        """Ask people for a verdict on an open proposal, in place of those who were asked before.

        Needs the role author.

        Args:
            proposal: its id
            reviewers: names of people who may give verdicts, other than who made the proposal
            key: 32 hexadecimal digits, random for each act. Sent again with the same key, it is done once
        """
        service.ask_reviewers(person_of(request), service.review(proposal), reviewers, key=key or None)
        return reviewed(proposal, request)

    return [
        list_uses, read_use, read_verdict, compare_with_approved, approved_setting, check_use, propose, ask_reviewers,
        comment,
    ]  # fmt: skip


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
        "reviewers": list(proposal.reviewers),
    }


def _review(review: ProposalReview, quoted: Mapping[int, Quoted], root_path: str) -> dict[str, Any]:
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
            | passage_json(logged, quoted.get(logged.sequence))
            for logged in review.proposal.comments
            if isinstance(logged.event, Commented)
        ],
        "page": f"{root_path}/review?proposal={review.proposal.id}",
    }
