"""Answers to the calls of reviews, for programs. Newer versions may add fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NotRequired, cast

from typing_extensions import TypedDict

from fsd_core.review.passages import Quoted, passage_json
from fsd_core.storage.review_events import Commented

if TYPE_CHECKING:
    from fsd_core.review.history import Proposal, Use
    from fsd_core.review.proposal_review import ProposalReview
    from fsd_core.storage.records import LoggedEvent


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
