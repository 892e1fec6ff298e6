"""What the calls of reviews answer with, for programs. Newer versions may add fields."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict


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
    """A proposal."""

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
