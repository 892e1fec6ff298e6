"""Review page: uses and their approved settings.

``?use=`` opens a use, ``?proposal=`` a proposal, and ``?propose=`` a new proposal of a setting, with the fresh prompts
of ``&calibration=`` as evidence if it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.review.opened_proposal import OpenedProposal
from dashboard.review.propose_form import ProposeForm
from dashboard.review.use_change import UseChange
from dashboard.review.use_form import UseForm
from dashboard.review.use_html import use_html, uses_html, waiting_html
from dashboard.ui.components import dead_end, heading, notice, section, show
from dashboard.ui.question import Asked, Updates, Values, count_in
from dashboard.ui.templates import Html
from dashboard.ui.view import View
from fsd_core.errors import FsdError, UnknownName
from fsd_core.review.approvals import approval_of
from fsd_core.review.review_service import ReviewService
from fsd_core.review.reviewers import waiting_for
from fsd_core.storage.review_events import LONGEST_TEXT

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository

_LEAD = "What settings are wanted for, which one is approved, and why."
_ROLLED_BACK, _TAKEN_BACK = "Why it is rolled back", "Why the approval is taken back"
_NAMED = ("proposal", "propose", "use")
"""query parameters that select a panel, in order of precedence"""


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    ReviewPage(repository)


class ReviewPage:
    """All uses, one of them, a proposal or the form for a new one, as the address names it."""

    def __init__(self, repository: Repository) -> None:
        service, self.message = ReviewService(repository), show()
        with gr.Column(visible=False) as overview_part:
            self.overview = Overview(service)
        with gr.Column(visible=False) as use_part:
            self.use = OpenedUse(service)
        with gr.Column(visible=False) as propose_part:
            self.form = ProposeForm(service)
        with gr.Column(visible=False) as proposal_part:
            self.proposal = OpenedProposal(service)
        self._parts = {"": overview_part, "use": use_part, "propose": propose_part, "proposal": proposal_part}
        view = self._view = View(self.message, self.fail)
        panels = self.overview, self.use, self.form, self.proposal
        for panel in panels:
            panel.listen(view)
        outputs = [*self._parts.values(), *(output for panel in panels for output in panel.outputs)]
        view.listen(self.redraw, self.proposal.fields, outputs, [form for panel in panels for form in panel.forms])

    def redraw(self, asked: Asked) -> Updates:
        """Return the updates of the panel that the address names."""
        named = _named(asked)
        panels = {"": self.overview, "use": self.use, "propose": self.form, "proposal": self.proposal}
        try:
            updates = panels[named].redraw(asked, asked.address.get(named, ""))
        except UnknownName as error:
            return self._view.only(asked, self._parts.values(), None, _nothing(error))
        return updates | self._view.only(asked, self._parts.values(), self._parts[named])

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return the page with an error in place of its content."""
        if asked.opening:
            return {self.message: _nothing(error)}
        if _named(asked) == "proposal":
            return self.proposal.fail(error)
        return {self.message: notice(str(error), "bad")}


def _named(asked: Asked) -> str:
    return next((name for name in _NAMED if asked.address.get(name)), "")


def _nothing(error: FsdError) -> Html:
    return dead_end(str(error), "review", "See all uses")


class Overview:
    """All uses, and a form for a new one."""

    def __init__(self, service: ReviewService) -> None:
        self.service = service
        show(heading("Review", _LEAD))
        self.waiting = show()
        self.uses = show()
        show(section("Make a use"))
        self.form = UseForm()
        self.make = gr.Button("Make the use", variant="primary")
        self.answer = show()
        self.forms = self.form.typed
        self.outputs = [self.waiting, self.uses]

    def listen(self, view: View) -> None:
        """Attach the event."""
        view.button(self.make, "make a use", self.form.fields, self.describe, self.answer)

    def redraw(self, asked: Asked, _id: str) -> Updates:
        """Return all uses, if they differ."""
        uses = self.service.uses()
        labels = self.service.labels(uses)
        html, waiting = uses_html(uses, labels), waiting_html(waiting_for(uses, asked.person), labels)
        return {self.waiting: waiting, self.uses: html} if asked.differs("uses", html, waiting) else {}

    def describe(self, values: Values, asked: Asked) -> Updates:
        """Make a use."""
        use = self.form.make(self.service, values, asked, values.key)
        return {self.answer: notice(f"“{use.name}” is made: open a setting and propose it.")}


class OpenedUse:
    """One use with its log, and the way back to what was approved before, or to nothing where nothing was."""

    def __init__(self, service: ReviewService) -> None:
        self.service = service
        self.use = show()
        with gr.Column(visible=False) as self.way_back:
            with gr.Row(elem_classes=["rev-forms"]):
                self.comment = gr.Textbox(label=_ROLLED_BACK, max_length=LONGEST_TEXT, scale=3)
                self.back = gr.Button(variant="stop")
            self.barred = show()
        self.answer = show()
        self.change = UseChange(service)
        self.seen = gr.Textbox(visible="hidden")  # the number of the last act on the page
        self.forms = [self.comment, *self.change.forms]
        self.outputs: list[Any] = [self.use, self.way_back, self.back, self.barred, self.comment, self.seen]

    def listen(self, view: View) -> None:
        """Attach the event."""
        self.change.listen(view)
        view.button(self.back, "roll back", [self.seen, self.comment], self.roll_back, self.answer, barred=self.barred)

    def redraw(self, asked: Asked, use_id: str) -> Updates:
        """Return the use, if it differs."""
        use = self.service.use(use_id)
        self.change.redraw(asked, use)
        html = use_html(use, self.service.labels([use]), approval_of(self.service.repository, use))
        if not asked.differs("use", html, use.sequence):
            return {}
        back, why = "Take the approval back", _TAKEN_BACK
        if len(use.in_force) > 1:
            back, why = "Roll back to what was approved before", _ROLLED_BACK
        return {
            self.use: html,
            self.way_back: gr.Column(visible=use.named("approved") is not None),
            self.back: gr.Button(back),
            self.comment: gr.Textbox(label=why),
            self.seen: str(use.sequence),
        }

    def roll_back(self, values: Values, asked: Asked) -> Updates:
        """Point the alias ``approved`` back to the setting that it named before, or to none if there was none."""
        use, seen = asked.address.get("use", ""), count_in(values[self.seen])
        setting = self.service.roll_back(asked.person, use, values[self.comment], seen, values.key)
        asked.used(values, self.comment)
        return {self.answer: notice("Rolled back." if setting else "The approval is taken back.")}
