"""Review page: uses and their approved settings.

``?use=`` opens a use, ``?proposal=`` a proposal, and ``?propose=`` a new proposal of a setting, with the fresh prompts
of ``&calibration=`` as evidence if it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.review.opened_proposal import OpenedProposal
from dashboard.review.optional_number import optional_number, read
from dashboard.review.propose_form import ProposeForm
from dashboard.review.use_html import use_html, uses_html
from dashboard.ui.components import PRIVATE_EVENT, dead_end, heading, notice, on_load, section, show
from dashboard.ui.signed_in import person_of
from fsd_core.errors import FsdError
from fsd_core.review.review_service import ReviewService
from fsd_core.storage.review_events import LONGEST_USE_TITLE, LONGEST_WORDS, Requirements

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository

_LEAD = "What settings are wanted for, which one is approved, and why."

Updates = dict[Any, Any]


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    service, message = ReviewService(repository), show()
    with gr.Column(visible=False) as overview_part:
        overview = Overview(service)
    with gr.Column(visible=False) as use_part:
        opened_use = OpenedUse(service)
    with gr.Column(visible=False) as propose_part:
        form = ProposeForm(service)
    with gr.Column(visible=False) as proposal_part:
        proposal = OpenedProposal(service)
    parts = {"use": use_part, "propose": propose_part, "proposal": proposal_part, "": overview_part}

    def open_page(request: gr.Request) -> Updates:
        """Return what the address names."""
        named = next((name for name in ("proposal", "propose", "use") if request.query_params.get(name)), "")
        id = request.query_params.get(named, "")
        openers: dict[str, Any] = {
            "use": opened_use.open, "": lambda _: overview.open(),
            "propose": lambda id: form.open(id, request.query_params.get("calibration", "")),
            "proposal": lambda id: proposal.open(id, person_of(request)),
        }  # fmt: skip
        try:
            updates = openers[named](id)
        except FsdError as error:
            return {message: dead_end(str(error), "/review", "See all uses")}
        return updates | {part: gr.Column(visible=name == named) for name, part in parts.items()}

    outputs = [*overview.outputs, *opened_use.outputs, *form.outputs, *proposal.outputs]
    on_load(open_page, None, [message, *parts.values(), *outputs])


class Overview:
    """All uses, and a form for a new one."""

    def __init__(self, desk: ReviewService) -> None:
        self.desk = desk
        show(heading("Review", _LEAD))
        self.uses = show()
        show(section("Make a use"))
        with gr.Row(elem_classes=["rev-forms"]):
            self.name = gr.Textbox(label="Name", placeholder="Support chat", max_length=LONGEST_USE_TITLE)
            self.description = gr.Textbox(label="Description", max_length=LONGEST_WORDS, scale=2)
        with gr.Row(elem_classes=["rev-forms"]):
            self.margin = gr.Number(2, label="Accuracy", info="Points that may be lost")
            self.speed = optional_number("Speed", "Times as fast as the baseline, at least; empty: any")
            self.length = optional_number("Answers", "Times as long as the baseline's, at most; empty: any")
            self.approvals = gr.Number(1, label="Approvals", info="Of different people")
            self.days = optional_number("Good for", "Days; empty: for ever")
            self.make = gr.Button("Make the use", variant="primary")
        self.answer = show()
        fields = [self.name, self.description, self.margin, self.speed, self.length, self.approvals, self.days]
        self.make.click(self.describe, fields, [self.uses, self.answer, self.name, self.description], **PRIVATE_EVENT)

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`open` may change."""
        return [self.uses]

    def open(self) -> Updates:
        uses = self.desk.uses()
        return {self.uses: uses_html(uses, self.desk.labels(uses))}

    def describe(
        self, name: str, description: str, margin: float | None, speed: str, length: str, approvals: int | None,
        days: str, request: gr.Request,
    ) -> Updates:  # fmt: skip
        try:
            least, most, days_valid = read(speed, "Speed"), read(length, "Answers"), read(days, "Good for", int)
            requirements = Requirements.checked(margin=margin, least_speedup=least, longest_answers=most)
            use = self.desk.describe(
                person_of(request), name or "", description or "", requirements, approvals or 0, days_valid
            )
        except FsdError as error:
            return {self.answer: notice(str(error), "bad")}
        message = notice(f"“{use.name}” is made: open a setting and propose it.")
        return self.open() | {self.answer: message, self.name: "", self.description: ""}


class OpenedUse:
    """One use with its log, and the rollback to what was approved before."""

    def __init__(self, desk: ReviewService) -> None:
        self.desk = desk
        self.use = show()
        with gr.Row(visible=False, elem_classes=["rev-forms"]) as self.row:
            self.comment = gr.Textbox(label="Why it is rolled back", max_length=LONGEST_WORDS, scale=3)
            self.back = gr.Button("Roll back to what was approved before", variant="stop")
        self.answer = show()
        self.shown = gr.State(("", 0))
        self.back.click(self.roll_back, [self.shown, self.comment], [*self.outputs, self.answer], **PRIVATE_EVENT)

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`open` may change."""
        return [self.use, self.row, self.shown, self.comment]

    def open(self, use_id: str) -> Updates:
        use = self.desk.use(use_id)
        return {
            self.use: use_html(use, self.desk.labels([use])),
            self.row: gr.Row(visible=use.named("approved") is not None),
            self.shown: (use.id, use.sequence),
            self.comment: "",
        }

    def roll_back(self, shown: tuple[str, int], comment: str, request: gr.Request) -> Updates:
        """Point the alias ``approved`` back to the setting that it named before."""
        try:
            self.desk.roll_back(person_of(request), shown[0], comment or "", shown[1])
        except FsdError as error:
            return {self.answer: notice(str(error), "bad")}
        return self.open(shown[0]) | {self.answer: notice("Rolled back.")}
