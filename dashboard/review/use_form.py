"""The form of a new use, on the page of all uses and where a setting is proposed before there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gradio as gr

from dashboard.review.optional_number import optional_number, read
from dashboard.ui.view import Asked, Values
from fsd_core.frozen import check_fields
from fsd_core.storage.review_events import LONGEST_TEXT, LONGEST_USE_TITLE, Requirements

if TYPE_CHECKING:
    from fsd_core.review.history import Use
    from fsd_core.review.review_service import ReviewService


class UseForm:
    """The form's components as attributes. ``fields`` are all of them, ``typed`` those that are emptied by the act."""

    def __init__(self) -> None:
        with gr.Row(elem_classes=["rev-forms"]):
            self.name = gr.Textbox(label="Name", placeholder="Support chat", max_length=LONGEST_USE_TITLE)
            self.description = gr.Textbox(label="Description", max_length=LONGEST_TEXT, scale=2)
        with gr.Row(elem_classes=["rev-forms"]):
            self.margin = gr.Number(2, label="Accuracy", info="Points that may be lost")
            self.speed = optional_number("Speed", "Times as fast by time per answer, at least; empty: any")
            self.length = optional_number("Answers", "Times as long as the baseline's, at most; empty: any")
            self.approvals = gr.Number(1, label="Approvals", info="Of different people")
            self.days = optional_number("Good for", "Days; empty: for ever")
        self.typed = [self.name, self.description]
        self.fields = [*self.typed, self.margin, self.speed, self.length, self.approvals, self.days]

    def make(self, service: ReviewService, values: Values, asked: Asked, key: str) -> Use:
        """Make the use that the fields describe, and empty them. Raises as ``ReviewService.describe``."""
        titles = {name: str(field.title) for name, field in Requirements.model_fields.items()}
        requirements = check_fields(
            Requirements,
            titles,
            margin=values[self.margin],
            least_speedup=read(values[self.speed], "Speed"),
            longest_answers=read(values[self.length], "Answers"),
        )
        use = service.describe(
            asked.person, values[self.name] or "", values[self.description] or "", requirements,
            values[self.approvals] or 0, read(values[self.days], "Good for", int), key=key,
        )  # fmt: skip
        asked.used(values, *self.typed)
        return use
