"""API endpoints of proposals: read, propose and comment. Only people give verdicts, on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gradio as gr

from dashboard.review.beside_record import BesideAnswer, beside_record
from dashboard.review.review_answers import LogAnswer, ReviewAnswer, logged_answer, review_answer
from dashboard.tables.prompt_pairs import Show
from dashboard.ui.endpoint import Endpoint, checked_limit, does
from dashboard.ui.signed_in import person_of
from fsd_core.errors import NotGiven, UnknownChoice
from fsd_core.review.blinding import blinded
from fsd_core.review.passages import quoted_passages
from fsd_core.review.proposal_review import ProposalReview
from fsd_core.review.review_service import ReviewService
from fsd_core.texts import Id, Key

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

_MOST_ACTS = 1000


def review_endpoints(repository: Repository, root_path: str) -> list[Endpoint]:
    service = ReviewService(repository)

    def reviewed(proposal: Id, request: gr.Request) -> ReviewAnswer:
        review = service.review(proposal)
        return review_answer(review, quoted_passages(repository, person_of(request), review), root_path)

    def read_verdict(proposal: Id, request: gr.Request) -> ReviewAnswer:
        """Return a proposal with its evidence for each requirement (met, not met or undecided, with intervals).

        It also has the open requirements, who approves of it, and the comments.

        Args:
            proposal: its id, from propose or read_use
        """
        return reviewed(proposal, request)

    @does()
    def propose(
        use: Id,
        runs: list[Id],
        baselines: list[Id],
        request: gr.Request,
        rationale: str = "",
        key: Key = "",
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
        proposal: Id, request: gr.Request, which: Show = "outcome", limit: int = 20, offset: int = 0
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
        proposal: Id,
        words: str,
        request: gr.Request,
        reply_to: int | None = None,
        prompt: int | None = None,
        key: Key = "",
        run: Id = "",
        quote: str = "",
        start: int = 0,
    ) -> ReviewAnswer:
        """Comment on a proposal. Needs the role author.

        Args:
            proposal: its id
            words: the comment
            reply_to: id of the comment or verdict that it answers
            prompt: number of the prompt whose answer it is on, from 1. Default: it is on the whole proposal
            key: 32 hexadecimal digits, random for each comment. Sent again with the same key, it is added once
            run: id of the run that answered. Default: the first run of the setting
            quote: passage of the answer that it is on. Default: the whole answer
            start: character of the answer near which the passage begins, from 0
        """
        review, position = service.review(proposal), None if prompt is None else prompt - 1
        if (prompt is None and (run or quote)) or (prompt is not None and prompt < 1):
            raise NotGiven("An answer has a prompt, from 1: name it, or neither a run nor a quote.")
        if prompt is not None and not run:
            run = _run_of(review, prompt)
        service.comment(
            person_of(request), review, words, reply_to, run or None, position, key or None,
            (start, quote) if quote else None,
        )  # fmt: skip
        return reviewed(proposal, request)

    @does()
    def ask_reviewers(proposal: Id, reviewers: list[str], request: gr.Request, key: Key = "") -> ReviewAnswer:
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
    def choose_evidence(
        proposal: Id,
        runs: list[Id],
        baselines: list[Id],
        evidence: str,
        request: gr.Request,
        why: str = "",
        key: Key = "",
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
    def withdraw(proposal: Id, request: gr.Request, why: str = "", key: Key = "") -> ReviewAnswer:
        """Withdraw an open proposal. For its author, and people with the role admin.

        Args:
            proposal: its id
            why: why
            key: 32 hexadecimal digits, random for each withdrawal. Sent again with the same key, it is done once
        """
        service.withdraw(person_of(request), service.review(proposal), why, key or None)
        return reviewed(proposal, request)

    def review_log(request: gr.Request, use: Id = "", after: int = 0, limit: int = 100) -> list[LogAnswer]:
        """Return what was decided, oldest first: who did what and when, with all that they wrote.

        Args:
            use: id of a use. Default: all uses
            after: id of the last act that is known already
            limit: how many, 1 to 1000
        """
        if use:
            service.use(use)
        log = [logged for logged in repository.review_log(use or None) if logged.id > after]
        log = blinded(repository, person_of(request), log[: checked_limit(limit, _MOST_ACTS)])
        return [logged_answer(logged) for logged in log]

    return [read_verdict, compare_with_approved, review_log, propose, ask_reviewers, comment, choose_evidence, withdraw]


def _run_of(review: ProposalReview, prompt: int) -> str:
    """Return the run of the setting that answered a prompt, by its number from 1. Raises ``InvalidSetting``."""
    writers = review.evidence[0].setting_pool.writers if review.evidence else {}
    if prompt - 1 not in writers:
        raise UnknownChoice(f"The evidence has no prompt {prompt}: leave it out for the whole proposal.")
    return writers[prompt - 1]
