"""API endpoints of reviews: read, propose and comment. Only people give verdicts, on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import gradio as gr

from dashboard.review.beside_record import BesideAnswer, beside_record
from dashboard.review.review_answers import (
    ApprovedAnswer,
    CheckAnswer,
    LogAnswer,
    ReviewAnswer,
    UseAnswer,
    UseWithProposals,
    logged_answer,
    proposal_answer,
    review_answer,
    use_answer,
)
from dashboard.tables.prompt_pairs import Show
from dashboard.ui.endpoint import Endpoint, checked_limit, does
from dashboard.ui.signed_in import person_of
from fsd_core.errors import InvalidSetting
from fsd_core.review.approvals import approval_of, check_setting
from fsd_core.review.delivery import deliver, described
from fsd_core.review.passages import quoted_passages
from fsd_core.review.proposal_review import ProposalReview
from fsd_core.review.review_service import ReviewService
from fsd_core.storage.review_events import Requirements

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

_MOST_ACTS = 1000


def review_endpoints(repository: Repository, root_path: str) -> list[Endpoint]:
    service = ReviewService(repository)

    def reviewed(proposal: str, request: gr.Request) -> ReviewAnswer:
        review = service.review(proposal)
        return review_answer(review, quoted_passages(repository, person_of(request), review), root_path)

    def list_uses() -> list[UseAnswer]:
        """Return the uses that settings are wanted for, with their requirements.

        Each has the settings that are its candidate and approved for it.
        """
        return [use_answer(use) for use in service.uses()]

    def read_use(use: str) -> UseWithProposals:
        """Return a use with its proposals.

        Args:
            use: its id, from list_uses
        """
        view = service.use(use)
        return {**use_answer(view), "proposals": [proposal_answer(proposal) for proposal in view.proposals.values()]}

    def read_verdict(proposal: str, request: gr.Request) -> ReviewAnswer:
        """Return a proposal with its evidence for each requirement (met, not met or undecided, with intervals).

        It also has the open requirements, who approves of it, and the comments.

        Args:
            proposal: its id, from propose or read_use
        """
        return reviewed(proposal, request)

    def approved_setting(use: str, form: str = "") -> ApprovedAnswer:
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
        answer |= {"form": form, "text": deliver(setting, form, weights)} if form else {}
        return cast(ApprovedAnswer, answer)

    def check_use(use: str, setting: str = "") -> CheckAnswer:
        """Return whether a setting may serve a use now, with each requirement, its approval and its evidence.

        Args:
            use: its id
            setting: id of the setting. Default: the approved one
        """
        return cast(CheckAnswer, check_setting(repository, service.use(use), setting).as_json())

    @does()
    def propose(
        use: str,
        runs: list[str],
        baselines: list[str],
        request: gr.Request,
        rationale: str = "",
        key: str = "",
        reviewers: list[str] | None = None,
    ) -> ReviewAnswer:
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
    ) -> BesideAnswer:
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

    @does()
    def comment(
        proposal: str,
        words: str,
        request: gr.Request,
        reply_to: int | None = None,
        prompt: int | None = None,
        key: str = "",
        run: str = "",
        quote: str = "",
        start: int = 0,
    ) -> ReviewAnswer:
        """Comment on a proposal. Needs the role author.

        Args:
            proposal: its id
            words: the comment
            reply_to: id of the comment that it answers
            prompt: number of the prompt whose answer it is on, from 1. Default: it is on the whole proposal
            key: 32 hexadecimal digits, random for each comment. Sent again with the same key, it is added once
            run: id of the run that answered. Default: the first run of the setting
            quote: passage of the answer that it is on. Default: the whole answer
            start: character of the answer near which the passage begins, from 0
        """
        review, position = service.review(proposal), None if prompt is None else prompt - 1
        if (prompt is None and (run or quote)) or (prompt is not None and prompt < 1):
            raise InvalidSetting("An answer has a prompt, from 1: name it, or neither a run nor a quote.")
        if prompt is not None and not run:
            run = _run_of(review, prompt)
        service.comment(
            person_of(request), review, words, reply_to, run or None, position, key or None,
            (start, quote) if quote else None,
        )  # fmt: skip
        return reviewed(proposal, request)

    @does()
    def ask_reviewers(proposal: str, reviewers: list[str], request: gr.Request, key: str = "") -> ReviewAnswer:
        """Ask people for a verdict on an open proposal, in place of those who were asked before.

        Needs the role author.

        Args:
            proposal: its id
            reviewers: names of people who may give verdicts, other than who made the proposal
            key: 32 hexadecimal digits, random for each act. Sent again with the same key, it is done once
        """
        service.ask_reviewers(person_of(request), service.review(proposal), reviewers, key=key or None)
        return reviewed(proposal, request)

    @does()
    def make_use(
        name: str,
        request: gr.Request,
        description: str = "",
        requirements: dict[str, float | None] = {},  # noqa: B006  # read, never written
        approvals: int = 1,
        days: int = 0,
        key: str = "",
    ) -> UseAnswer:
        """Make a use, which settings can be proposed for then. Needs the role author.

        Args:
            name: its name, which also makes its id
            description: what it is for
            requirements: margin (points of accuracy that may be lost, 2 by default), least_speedup and longest_answers
                (times as fast by time per answer, at least; times as long, at most), highest_cost (per solved task, at
                the price per hour of the machine). null requires nothing
            approvals: how many people must approve
            days: for which an approval counts. 0: for ever
            key: 32 hexadecimal digits, random for each use. Sent again with the same key, it is made once
        """
        asked = Requirements.named(requirements)
        return use_answer(
            service.describe(person_of(request), name, description, asked, approvals, days or None, key=key or None)
        )

    @does()
    def change_use(
        use: str,
        version: int,
        request: gr.Request,
        name: str | None = None,
        description: str | None = None,
        requirements: dict[str, float | None] = {},  # noqa: B006  # read, never written
        approvals: int | None = None,
        days: int | None = None,
        key: str = "",
    ) -> UseAnswer:
        """Change what a use asks for. For people with the role admin. What is left out stays unchanged.

        Approvals of what was asked for before become stale. It is refused if somebody else changed the use after the
        version that was read.

        Args:
            use: its id
            version: as read_use returned it
            name: new name. The id stays
            description: new description
            requirements: those that change, such as {"margin": 3, "least_speedup": null}. null requires nothing
            approvals: how many people must approve
            days: for which an approval counts. 0: for ever
            key: 32 hexadecimal digits, random for each change. Sent again with the same key, it is made once
        """
        changes = {"name": name, "description": description, "approvals": approvals}
        told: dict[str, Any] = {field: value for field, value in changes.items() if value is not None}
        told |= {"requirements": requirements} | ({} if days is None else {"days": days or None})
        return use_answer(service.change_use(person_of(request), use, told, version, key or None))

    @does()
    def choose_evidence(
        proposal: str,
        runs: list[str],
        baselines: list[str],
        evidence: str,
        request: gr.Request,
        why: str = "",
        key: str = "",
    ) -> ReviewAnswer:
        """Rest an open proposal on other runs of its setting. For its author, and people with the role admin.

        Verdicts and answers on the former evidence do not count any more. It is refused if the evidence changed after
        it was read.

        Args:
            proposal: its id
            runs: ids of the runs that are evidence
            baselines: ids of the runs to compare them with, on the same prompts
            evidence: evidence_hash of read_verdict, so that nothing unseen is replaced
            why: why
            key: 32 hexadecimal digits, random for each choice. Sent again with the same key, it is made once
        """
        review = service.review(proposal)
        service.choose_evidence(person_of(request), review, runs, baselines, why, evidence, key or None)
        return reviewed(proposal, request)

    @does()
    def withdraw(proposal: str, request: gr.Request, why: str = "", key: str = "") -> ReviewAnswer:
        """Withdraw an open proposal. For its author, and people with the role admin.

        Args:
            proposal: its id
            why: why
            key: 32 hexadecimal digits, random for each withdrawal. Sent again with the same key, it is done once
        """
        service.withdraw(person_of(request), service.review(proposal), why, key or None)
        return reviewed(proposal, request)

    def review_log(use: str = "", after: int = 0, limit: int = 100) -> list[LogAnswer]:
        """Return what was decided, oldest first: who did what and when, with all that they wrote.

        Args:
            use: id of a use. Default: all uses
            after: id of the last act that is known already
            limit: how many, 1 to 1000
        """
        if use:
            service.use(use)
        log = [logged for logged in repository.review_log(use or None) if logged.id > after]
        return [logged_answer(logged) for logged in log[: checked_limit(limit, _MOST_ACTS)]]

    reading = [list_uses, read_use, read_verdict, compare_with_approved, approved_setting, check_use, review_log]
    return [*reading, propose, ask_reviewers, comment, make_use, change_use, choose_evidence, withdraw]


def _run_of(review: ProposalReview, prompt: int) -> str:
    """Return the run of the setting that answered a prompt, by its number from 1. Raises ``InvalidSetting``."""
    writers = review.evidence[0].setting_pool.writers if review.evidence else {}
    if prompt - 1 not in writers:
        raise InvalidSetting(f"The evidence has no prompt {prompt}: leave it out for the whole proposal.")
    return writers[prompt - 1]
