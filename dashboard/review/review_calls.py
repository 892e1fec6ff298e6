"""API endpoints of reviews: proposals and uses. Only people give verdicts, on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NotRequired, cast

import gradio as gr
from typing_extensions import TypedDict

from dashboard.review.opened_proposal import BesideAnswer, beside_record
from dashboard.tables.prompt_pairs import Show
from dashboard.ui.api_call import ApiCall, checked_limit, does
from dashboard.ui.view import person_of
from fsd_core.errors import NotGiven, UnknownChoice
from fsd_core.review.approvals import approval_of, check_setting
from fsd_core.review.blinding import Quoted, blinded, passage_json, quoted_passages
from fsd_core.review.delivery import deliver, described
from fsd_core.review.history import ProposalReview
from fsd_core.review.review_service import ReviewService
from fsd_core.storage.review_events import Commented, Requirements
from fsd_core.texts import Id, Key

if TYPE_CHECKING:
    from fsd_core.review.history import Proposal, Use
    from fsd_core.storage.records import LoggedEvent
    from fsd_core.storage.repository import Repository


class UseAnswer(TypedDict):
    """A use. ``version`` is what ``change_use`` takes."""

    use: str
    name: str
    description: str
    requirements: dict[str, float | None]
    approvals_needed: int
    days: int | None
    version: int
    candidate: str | None
    approved: str | None


class ProposalAnswer(TypedDict):
    """A proposal. ``waits_for`` names for whom it waits, each with ``verdict`` or ``changes``."""

    proposal: str
    use: str
    setting: str
    author: str
    owner: str | None
    at: str
    state: str
    rationale: str
    requirements: dict[str, float | None]
    runs: list[str]
    baselines: list[str]
    reviewers: list[str]
    waits_for: dict[str, str]


class UseWithProposals(UseAnswer):
    """A use with its proposals."""

    proposals: list[ProposalAnswer]


class FindingAnswer(TypedDict):
    """What the evidence says of a requirement."""

    requirement: str
    outcome: str
    told: str


class EvidenceAnswer(TypedDict):
    """One measurement beside its baseline."""

    run: str
    baseline: str
    pair: str
    runs: list[str]
    baselines: list[str]
    prompts: int
    calibration: str | None
    runaways_at_most: float | None
    findings: list[FindingAnswer]


class JudgementAnswer(TypedDict):
    """A verdict of one person."""

    id: int
    who: str
    verdict: str
    comment: str
    at: str


class CommentedAnswer(TypedDict):
    """The answer that a comment is on: where it quotes a passage, that, and whether it stands there still."""

    run: str
    prompt: int
    state: NotRequired[str]
    start: NotRequired[int]
    end: NotRequired[int]
    quote: NotRequired[str]


class CommentAnswer(TypedDict):
    """A comment. ``reply_to`` is the ``id`` of another, and ``prompt`` a number from 1."""

    id: int
    who: str
    owner: str | None
    at: str
    words: str
    reply_to: int | None
    run: str | None
    prompt: int | None
    answer: NotRequired[CommentedAnswer]


class ReviewAnswer(ProposalAnswer):
    """A proposal with all that its verdict rests on. ``evidence_hash`` is what ``choose_evidence`` takes."""

    evidence: list[EvidenceAnswer]
    evidence_hash: str
    note: str
    missing_runs: list[str]
    open_requirements: list[str]
    standing: dict[str, Any]
    judgements: list[JudgementAnswer]
    comments: list[CommentAnswer]
    page: str


class LogAnswer(TypedDict):
    """One act of the review log."""

    id: int
    use: str
    sequence: int
    at: str
    who: str
    role: str
    owner: str | None
    act: dict[str, Any]


class ApprovalAnswer(TypedDict):
    """What an approval is worth now."""

    expires_at: str | None
    expired: bool
    stale: bool
    evidence: str
    requirements: dict[str, float | None] | None
    note: str


class _Approved(TypedDict):
    setting: str
    pair: str
    models: dict[str, dict[str, str]]
    options: dict[str, Any]
    weights: dict[str, str]
    approval: ApprovalAnswer | None


class ApprovedAnswer(_Approved, total=False):
    """The approved setting; ``text`` if a ``form`` was asked for."""

    form: str
    text: str


_Passing = TypedDict("_Passing", {"pass": bool})


class CheckAnswer(_Passing):
    """Whether a setting may serve a use."""

    use: str
    setting: str
    approved: bool
    approval: ApprovalAnswer | None
    requirements: list[dict[str, Any]]
    reasons: list[str]


def use_answer(use: Use) -> UseAnswer:
    """Return a use as a call answers with it."""
    return {
        "use": use.id,
        "name": use.name,
        "description": use.description,
        "requirements": use.requirements.as_json(),
        "approvals_needed": use.approvals,
        "days": use.days,
        "version": use.described_at,
        "candidate": use.named("candidate"),
        "approved": use.named("approved"),
    }


def logged_answer(logged: LoggedEvent) -> LogAnswer:
    """Return one row of the review log as a call answers with it."""
    return {
        "id": logged.id,
        "use": logged.use_id,
        "sequence": logged.sequence,
        "at": logged.at.isoformat(),
        "who": logged.who,
        "role": logged.role,
        "owner": logged.owner,
        "act": logged.event.as_json(),
    }


def comment_answer(logged: LoggedEvent, event: Commented) -> CommentAnswer:
    """Return a comment as a call answers with it, without its passage."""
    return {
        "id": logged.sequence,
        "who": logged.who,
        "owner": logged.owner,
        "at": logged.at.isoformat(),
        "words": event.words,
        "reply_to": event.reply_to,
        "run": event.run,
        "prompt": None if event.position is None else event.position + 1,
    }


def proposal_answer(proposal: Proposal) -> ProposalAnswer:
    """Return a proposal as a call answers with it."""
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
        "waits_for": {**proposal.waits_for},
    }


def review_answer(review: ProposalReview, quoted: Mapping[int, Quoted], root_path: str) -> ReviewAnswer:
    """Return a proposal with its evidence and what was said of it.

    ``quoted``: passages by the number of the comment that stands on them.
    """
    return {
        **proposal_answer(review.proposal),
        "evidence": [
            {
                "run": item.run.id,
                "baseline": item.baseline.id,
                "pair": item.run.pair,
                "runs": [run.id for run in item.setting_pool.runs],
                "baselines": [run.id for run in item.baseline_pool.runs],
                "prompts": item.shared,
                "calibration": item.setting_pool.calibration,
                "runaways_at_most": item.runaways.most if item.runaways else None,
                "findings": [
                    {"requirement": check.requirement, "outcome": check.outcome, "told": check.text}
                    for check in item.findings
                ],
            }
            for item in review.evidence
        ],
        "evidence_hash": review.hash,
        "note": review.note,
        "missing_runs": list(review.missing),
        "open_requirements": list(review.open_requirements),
        "standing": {
            key: list(value) if isinstance(value, tuple) else value for key, value in review.status._asdict().items()
        },
        "judgements": [
            {
                "id": one.sequence,
                "who": one.who,
                "verdict": one.verdict,
                "comment": one.comment,
                "at": one.at.isoformat(),
            }
            for one in review.proposal.judgements
        ],
        "comments": [
            cast(
                CommentAnswer,
                {**comment_answer(logged, logged.event), **passage_json(logged, quoted.get(logged.sequence))},
            )
            for logged in review.proposal.comments
            if isinstance(logged.event, Commented)
        ],
        "page": f"{root_path}/review?proposal={review.proposal.id}",
    }


_MOST_ACTS = 1000


def review_calls(repository: Repository, root_path: str) -> list[ApiCall]:
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


def use_calls(repository: Repository) -> list[ApiCall]:
    service = ReviewService(repository)

    def list_uses() -> list[UseAnswer]:
        """Return the uses that settings are wanted for, with their requirements.

        Each has the settings that are its candidate and approved for it.
        """
        return [use_answer(use) for use in service.uses()]

    def read_use(use: Id) -> UseWithProposals:
        """Return a use with its proposals.

        Args:
            use: its id, from list_uses
        """
        view = service.use(use)
        return {**use_answer(view), "proposals": [proposal_answer(proposal) for proposal in view.proposals.values()]}

    def approved_setting(use: Id, form: str = "") -> ApprovedAnswer:
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

    def check_use(use: Id, setting: str = "") -> CheckAnswer:
        """Return whether a setting may serve a use now, with each requirement, its approval and its evidence.

        Args:
            use: its id
            setting: id of the setting. Default: the approved one
        """
        return cast(CheckAnswer, check_setting(repository, service.use(use), setting).as_json())

    @does()
    def make_use(
        name: str,
        request: gr.Request,
        description: str = "",
        requirements: dict[str, float | None] = {},  # noqa: B006  # read, never written
        approvals: int = 1,
        days: int = 0,
        key: Key = "",
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
        use: Id,
        version: int,
        request: gr.Request,
        name: str | None = None,
        description: str | None = None,
        requirements: dict[str, float | None] = {},  # noqa: B006  # read, never written
        approvals: int | None = None,
        days: int | None = None,
        key: Key = "",
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

    return [list_uses, read_use, approved_setting, check_use, make_use, change_use]
