"""What is done in reviews: proposed, commented, asked for and withdrawn. Only people give verdicts, on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, cast

from typing_extensions import TypedDict

from fsd_core.actions.action import Ask, Told, action
from fsd_core.actions.answers import checked_limit
from fsd_core.errors import NotGiven, UnknownChoice
from fsd_core.review.blinding import Quoted, blinded, passage_json, quoted_passages
from fsd_core.review.history import ProposalReview
from fsd_core.review.review_service import ReviewService
from fsd_core.storage.review_events import Commented
from fsd_core.texts import Id, Key

if TYPE_CHECKING:
    from fsd_core.review.history import Proposal
    from fsd_core.storage.records import LoggedEvent

_MOST_ACTS = 1000


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


def _service(ask: Ask) -> ReviewService:
    return ReviewService(ask.repository)


def _reviewed(ask: Ask, proposal: str) -> ReviewAnswer:
    review = _service(ask).review(proposal)
    return review_answer(review, quoted_passages(ask.repository, ask.person, review), ask.settings.root_path)


def _run_of(review: ProposalReview, prompt: int) -> str:
    """Return the run of the setting that answered a prompt, by its number from 1. Raises ``InvalidSetting``."""
    writers = review.evidence[0].setting_pool.writers if review.evidence else {}
    if prompt - 1 not in writers:
        raise UnknownChoice(f"The evidence has no prompt {prompt}: leave it out for the whole proposal.")
    return writers[prompt - 1]


@action()
def read_verdict(
    ask: Ask,
    proposal: Annotated[Id, "its id, from propose or read_use"],
) -> ReviewAnswer:
    """Return a proposal with its evidence for each requirement (met, not met or undecided, with intervals).

    It also has the open requirements, who approves of it, and the comments.
    """
    return _reviewed(ask, proposal)


@action(writes=True)
def propose(
    ask: Ask,
    use: Annotated[Id, "id of the use"],
    runs: Annotated[list[Id], "ids of the runs that are evidence, all of one setting"],
    baselines: Annotated[list[Id], "ids of the runs to compare them with, on the same prompts"],
    rationale: Annotated[str, "why"] = "",
    key: Annotated[
        Key, "32 hexadecimal digits, random for each proposal. Sent again with the same key, it is made once"
    ] = "",
    reviewers: Annotated[list[str] | None, "names of people who are asked for a verdict"] = None,
) -> ReviewAnswer:
    """Propose the setting of measured runs as the candidate of a use. Needs the role author."""
    names = reviewers or []
    id = _service(ask).propose(ask.person, use, runs, baselines, rationale, key=key or None, reviewers=names)
    return _reviewed(ask, id)


@action(writes=True)
def comment(
    ask: Ask,
    proposal: Annotated[Id, "its id"],
    words: Annotated[str, "the comment"],
    reply_to: Annotated[int | None, "id of the comment or verdict that it answers"] = None,
    prompt: Annotated[
        int | None, "number of the prompt whose answer it is on, from 1. Default: it is on the whole proposal"
    ] = None,
    key: Annotated[
        Key, "32 hexadecimal digits, random for each comment. Sent again with the same key, it is added once"
    ] = "",
    run: Annotated[Id, "id of the run that answered. Default: the first run of the setting"] = "",
    quote: Annotated[str, "passage of the answer that it is on. Default: the whole answer"] = "",
    start: Annotated[int, "character of the answer near which the passage begins, from 0"] = 0,
) -> ReviewAnswer:
    """Comment on a proposal. Needs the role author."""
    review, position = _service(ask).review(proposal), None if prompt is None else prompt - 1
    if (prompt is None and (run or quote)) or (prompt is not None and prompt < 1):
        raise NotGiven("An answer has a prompt, from 1: name it, or neither a run nor a quote.")
    if prompt is not None and not run:
        run = _run_of(review, prompt)
    _service(ask).comment(
        ask.person, review, words, reply_to, run or None, position, key or None,
        (start, quote) if quote else None,
    )  # fmt: skip
    return _reviewed(ask, proposal)


def _tell_asked(review: ReviewAnswer) -> Told:
    return Told([f"Asked for a verdict: {', '.join(review['reviewers'])}."])


@action("review ask", writes=True, tells=_tell_asked, arguments=("proposal", "reviewers"))
def ask_reviewers(
    ask: Ask,
    proposal: Annotated[Id, "its id"],
    reviewers: Annotated[list[str], "names of people who may give verdicts, other than who made the proposal"],
    key: Annotated[
        Key, "32 hexadecimal digits, random for each act. Sent again with the same key, it is done once"
    ] = "",
) -> ReviewAnswer:
    """Ask people for a verdict on an open proposal, in place of those who were asked before.

    Needs the role author.
    """
    _service(ask).ask_reviewers(ask.person, _service(ask).review(proposal), reviewers, key=key or None)
    return _reviewed(ask, proposal)


@action(writes=True)
def choose_evidence(
    ask: Ask,
    proposal: Annotated[Id, "its id"],
    runs: Annotated[list[Id], "ids of the runs that are evidence"],
    baselines: Annotated[list[Id], "ids of the runs to compare them with, on the same prompts"],
    evidence: Annotated[str, "evidence_hash of read_verdict, so that nothing unseen is replaced"],
    why: Annotated[str, "why"] = "",
    key: Annotated[
        Key, "32 hexadecimal digits, random for each choice. Sent again with the same key, it is made once"
    ] = "",
) -> ReviewAnswer:
    """Rest an open proposal on other runs of its setting. For its author, and people with the role admin.

    Verdicts and answers on the former evidence do not count any more. It is refused if the evidence changed after
    it was read.
    """
    review = _service(ask).review(proposal)
    _service(ask).choose_evidence(ask.person, review, runs, baselines, why, evidence, key or None)
    return _reviewed(ask, proposal)


@action(writes=True)
def withdraw(
    ask: Ask,
    proposal: Annotated[Id, "its id"],
    why: Annotated[str, "why"] = "",
    key: Annotated[
        Key, "32 hexadecimal digits, random for each withdrawal. Sent again with the same key, it is done once"
    ] = "",
) -> ReviewAnswer:
    """Withdraw an open proposal. For its author, and people with the role admin."""
    _service(ask).withdraw(ask.person, _service(ask).review(proposal), why, key or None)
    return _reviewed(ask, proposal)


@action()
def review_log(
    ask: Ask,
    use: Annotated[Id, "id of a use. Default: all uses"] = "",
    after: Annotated[int, "id of the last act that is known already"] = 0,
    limit: Annotated[int, "how many, 1 to 1000"] = 100,
) -> list[LogAnswer]:
    """Return what was decided, oldest first: who did what and when, with all that they wrote."""
    if use:
        _service(ask).use(use)
    log = [logged for logged in ask.repository.review_log(use or None) if logged.id > after]
    log = blinded(ask.repository, ask.person, log[: checked_limit(limit, _MOST_ACTS)])
    return [logged_answer(logged) for logged in log]
