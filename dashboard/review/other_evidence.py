"""The form by which the author of an open proposal rests it on other runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.review.evidence_fields import (
    EvidenceFields,
    baselines_of,
    choices_of,
    ids_in,
    measurements_of,
)
from dashboard.ui.components import notice, show
from fsd_core.review.pooling import grouped
from fsd_core.review.proposal_review import measured_runs
from fsd_core.storage.review_events import LONGEST_TEXT

if TYPE_CHECKING:
    from dashboard.ui.question import Asked, Updates, Values
    from dashboard.ui.view import View
    from fsd_core.review.proposal_review import ProposalReview
    from fsd_core.review.review_service import ReviewService


class OtherEvidence:
    """The form's components as attributes. ``seen``: the field with the hash of the evidence that the page shows."""

    def __init__(self, service: ReviewService) -> None:
        self.service = service
        with gr.Accordion("Choose other evidence", open=False, visible=False) as self.part:
            with gr.Row(elem_classes=["rev-forms"]):
                self.fields = EvidenceFields()
            with gr.Row(elem_classes=["rev-forms"]):
                self.comment = gr.Textbox(label="Why other runs", max_length=LONGEST_TEXT, scale=3)
                self.choose = gr.Button("Choose it")
            self.answer = show()
        self.forms = [*self.fields.both, self.comment]
        self.outputs: list[Any] = [self.part, *self.fields.both]

    def listen(self, view: View, seen: gr.Textbox) -> None:
        """Attach the event."""
        self._seen = seen
        view.button(self.choose, "choose evidence", [seen, *self.forms], self.choose_evidence, self.answer)

    def redraw(self, asked: Asked, review: ProposalReview) -> Updates:
        """Return the form with what can be chosen, if it differs; at first it holds what the proposal rests on."""
        proposal, repository = review.proposal, self.service.repository
        may = proposal.state == "open" and (proposal.is_by(asked.person.name) or asked.person.may("admin"))
        if not may:
            return {self.part: gr.Accordion(visible=False)} if asked.differs("other evidence", None) else {}
        runs, baselines, _ = measured_runs(repository, proposal)
        measured = measurements_of(repository, proposal.setting)
        offered = [baseline for measurement in measured for baseline in baselines_of(repository, measurement)]
        rests_on = grouped(runs), grouped(baselines)
        self.fields.fill(asked, *rests_on)
        choices = choices_of([*rests_on[0], *measured]), choices_of([*rests_on[1], *offered])
        if not asked.differs("other evidence", choices):
            return {}
        dropdowns = zip(self.fields.both, choices, strict=True)
        return {self.part: gr.Accordion(visible=True)} | {field: gr.Dropdown(offer) for field, offer in dropdowns}

    def choose_evidence(self, values: Values, asked: Asked) -> Updates:
        """Rest the proposal that the address names on the runs that were chosen."""
        review = self.service.review(asked.address.get("proposal", ""))
        runs, baselines = (ids_in(values[field]) for field in self.fields.both)
        _, _, evidence = values[self._seen].partition(" ")
        comment = values[self.comment]
        self.service.choose_evidence(asked.person, review, runs, baselines, comment, evidence, values.key)
        asked.used(values, self.comment)
        return {self.answer: notice("Chosen. Verdicts and answers on the former evidence do not count any more.")}
