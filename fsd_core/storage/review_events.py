"""Events of a review: frozen values, each one row of an append-only log.

The state of a use, a proposal or an alias follows from its events (:mod:`fsd_core.review.history`), so nothing that
anybody wrote is ever overwritten. ``as_json`` returns what is stored, and :func:`read_event` parses it. The JSON keys
are the same in every version. Newer fields are left out if empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError

from fsd_core.errors import DataDamaged
from fsd_core.frozen import Frozen, check_fields

LONGEST_TEXT = 10_000
LONGEST_USE_TITLE = 120
LONGEST_QUOTE = 2_000
_MOST_RUNS = 400
"""that one proposal is based on; rounds of a calibration are runs"""

MOST_REVIEWERS = 20

Names = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=100)], ...], Field(max_length=MOST_REVIEWERS)]
LongText = Annotated[str, Field(max_length=LONGEST_TEXT)]
RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
SettingId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Verdict = Literal["approve", "request changes", "decline"]
Alias = Literal["candidate", "approved"]
Choice = Literal["setting", "baseline", "tie", "both bad"]


class Requirements(Frozen):
    """Requirements of a use, each against the baseline on the same prompts; ``None`` requires nothing."""

    margin: float | None = Field(default=2.0, ge=0, le=20, title="Accuracy", description="points that may be lost")
    least_speedup: float | None = Field(
        default=None, gt=0, le=1000, title="Speed", description="times as fast by time per answer, at least"
    )
    longest_answers: float | None = Field(
        default=None, gt=0, le=1000, title="Answers", description="times as long, at most"
    )
    highest_cost: float | None = Field(
        default=None, gt=0, le=1e9, title="Cost", description="per solved task, at most",
        exclude_if=lambda cost: cost is None,  # as in uses of before there were costs, whose hashes stay
    )  # fmt: skip

    @classmethod
    def named(cls, values: Mapping[str, Any]) -> Self:
        """Return requirements. Raises ``InvalidSetting`` with their names on the pages."""
        return check_fields(cls, {name: str(field.title) for name, field in cls.model_fields.items()}, **values)


class _Event(Frozen):
    @property
    def about(self) -> str | None:
        """The proposal that the event concerns, if any."""
        return getattr(self, "proposal", None)


class UseDescribed(_Event):
    """A use is created, or its description changed."""

    kind: Literal["use-described"] = "use-described"
    name: str = Field(min_length=1, max_length=LONGEST_USE_TITLE)
    description: LongText = ""
    requirements: Requirements = Requirements()
    approvals: int = Field(default=1, ge=1, le=20)
    """by different people, needed to move the alias ``approved``"""
    days: int | None = Field(default=None, ge=1, le=3650)
    """for which an approval counts; ``None``: forever"""


class Proposed(_Event):
    """A setting is proposed for the use. ``proposal`` is its id."""

    kind: Literal["proposed"] = "proposed"
    proposal: RunId
    setting: SettingId
    requirements: Requirements
    runs: tuple[RunId, ...] = Field(min_length=1, max_length=_MOST_RUNS)
    """of the setting: its evidence"""
    baselines: tuple[RunId, ...] = Field(min_length=1, max_length=_MOST_RUNS)
    rationale: LongText = ""
    reviewers: Names = Field(default=(), exclude_if=lambda names: not names)
    """who is asked for a verdict"""


class EvidenceChosen(_Event):
    """The author rests an open proposal on other runs of the same setting."""

    kind: Literal["evidence-chosen"] = "evidence-chosen"
    proposal: RunId
    runs: tuple[RunId, ...] = Field(min_length=1, max_length=_MOST_RUNS)
    baselines: tuple[RunId, ...] = Field(min_length=1, max_length=_MOST_RUNS)
    comment: LongText = ""


class Waived(_Event):
    """Somebody takes responsibility, by name, for a requirement that is not met or not decided."""

    kind: Literal["waived"] = "waived"
    proposal: RunId
    requirement: str
    words: LongText = Field(min_length=1)
    evidence: str
    """hash of the evidence that was seen"""


class Passage(Frozen):
    """Part of an answer that a comment is on: characters ``start`` to ``end`` of its text, which were ``quote``."""

    start: int = Field(ge=0)
    end: int = Field(gt=0)
    quote: str = Field(min_length=1, max_length=LONGEST_QUOTE)
    text: str = Field(pattern=r"^[0-9a-f]{16}$")
    """hash of the whole text"""


class Commented(_Event):
    """A comment on a proposal, or on one run's output for one prompt."""

    kind: Literal["remarked"] = "remarked"
    proposal: RunId
    words: LongText = Field(min_length=1)
    reply_to: int | None = None
    """sequence of the comment it answers"""
    run: RunId | None = None
    position: int | None = Field(default=None, ge=0)
    """of the prompt in its task"""
    passage: Passage | None = Field(default=None, exclude_if=lambda passage: passage is None)


class Judged(_Event):
    """A reviewer's verdict."""

    kind: Literal["judged"] = "judged"
    proposal: RunId
    verdict: Verdict
    comment: LongText = ""
    evidence: str


class Withdrawn(_Event):
    """The author withdraws the proposal."""

    kind: Literal["withdrawn"] = "withdrawn"
    proposal: RunId
    comment: LongText = ""


class AliasMoved(_Event):
    """An alias of the use names another setting, or none."""

    kind: Literal["alias-moved"] = "alias-moved"
    alias: Alias
    setting: SettingId | None
    former: SettingId | None
    proposal: RunId | None = None
    """that moved it"""
    evidence: str = ""
    comment: LongText = ""
    weights: dict[str, str] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """for ``approved``, by role: what the evidence was measured with, and the only weights approved"""


class Voted(_Event):
    """A blind vote between the setting's and the baseline's answer to one prompt. Each person's last vote counts."""

    kind: Literal["voted"] = "voted"
    proposal: RunId
    run: RunId
    baseline: RunId
    position: int = Field(ge=0)
    choice: Choice
    left: Literal["setting", "baseline"]
    """which of the two was on the left"""


class ReviewersAsked(_Event):
    """Who is asked for a verdict from now on, in place of those before."""

    kind: Literal["reviewers-asked"] = "reviewers-asked"
    proposal: RunId
    reviewers: Names


class VotingStopped(_Event):
    """Somebody votes no more on a proposal, and reads the answers with their names from then on."""

    kind: Literal["voting-stopped"] = "voting-stopped"
    proposal: RunId


ReviewEvent = (
    UseDescribed | Proposed | EvidenceChosen | Waived | Commented | Judged | Withdrawn | AliasMoved | Voted
    | VotingStopped | ReviewersAsked
)  # fmt: skip
_ADAPTER: TypeAdapter[Any] = TypeAdapter(Annotated[ReviewEvent, Field(discriminator="kind")])


def written_text(event: ReviewEvent) -> str:
    """Return the comment of an event, or an empty string."""
    if isinstance(event, Proposed):
        return event.rationale
    if isinstance(event, UseDescribed):
        return event.description
    if isinstance(event, Waived | Commented):
        return event.words
    return getattr(event, "comment", "")


def read_event(data: object) -> ReviewEvent:
    """Return the event in a row. Raises ``DataDamaged`` if it is damaged or from a newer version."""
    try:
        return _ADAPTER.validate_python(data)
    except ValidationError:
        raise DataDamaged(
            "A row of the review log cannot be read: it was damaged, or written by a newer version of FSD Lab."
        ) from None
