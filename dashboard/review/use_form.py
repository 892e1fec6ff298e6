"""The form of a new use, on the page of all uses and where a setting is proposed before there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.ui.optional_number import optional_number, read
from dashboard.ui.question import Asked, Values
from fsd_core.storage.review_events import LONGEST_TEXT, LONGEST_USE_TITLE, Requirements

if TYPE_CHECKING:
    from fsd_core.review.history import Use
    from fsd_core.review.review_service import ReviewService
    from fsd_core.storage.review_events import UseDescribed


class UseForm:
    """The form's components as attributes. ``fields`` are all of them, ``typed`` those that are emptied by the act."""

    def __init__(self) -> None:
        with gr.Row(elem_classes=["rev-forms"]):
            self.name = gr.Textbox(label="Name", placeholder="Support chat", max_length=LONGEST_USE_TITLE)
            self.description = gr.Textbox(label="Description", max_length=LONGEST_TEXT, scale=2)
        with gr.Row(elem_classes=["rev-forms"]):
            self.margin = optional_number("Accuracy", "Points that may be lost; empty: any", "2")
            self.speed = optional_number("Speed", "Times as fast by time per answer, at least; empty: any")
            self.length = optional_number("Answers", "Times as long as the baseline's, at most; empty: any")
            self.cost = optional_number("Cost", "Per solved task, at most, at the price per hour; empty: any")
            self.approvals = gr.Number(1, label="Approvals", info="Of different people")
            self.days = optional_number("Good for", "Days; empty: for ever")
        self.typed = [self.name, self.description]
        self.fields = [*self.typed, self.margin, self.speed, self.length, self.cost, self.approvals, self.days]

    def read(self, values: Values) -> dict[str, Any]:
        """Return the values of the fields, by the names of ``UseDescribed`` and of its requirements."""
        return {
            "name": values[self.name] or "",
            "description": values[self.description] or "",
            "requirements": {
                "margin": read(values[self.margin], "Accuracy"),
                "least_speedup": read(values[self.speed], "Speed"),
                "longest_answers": read(values[self.length], "Answers"),
                "highest_cost": read(values[self.cost], "Cost"),
            },
            "approvals": values[self.approvals] or 0,
            "days": read(values[self.days], "Good for", int),
        }

    def texts(self, use: UseDescribed) -> dict[Any, Any]:
        """Return the value of each field for a use."""
        asked = use.requirements
        optional = {
            self.margin: asked.margin, self.speed: asked.least_speedup, self.length: asked.longest_answers,
            self.cost: asked.highest_cost, self.days: use.days,
        }  # fmt: skip
        texts = {field: "" if value is None else f"{value:.12g}" for field, value in optional.items()}
        return {self.name: use.name, self.description: use.description, self.approvals: use.approvals, **texts}

    def make(self, service: ReviewService, values: Values, asked: Asked, key: str) -> Use:
        """Make the use that the fields describe, and empty them. Raises as ``ReviewService.describe``."""
        told = self.read(values)
        requirements = Requirements.named(told.pop("requirements"))
        use = service.describe(asked.person, **told, requirements=requirements, key=key)
        asked.used(values, *self.typed)
        return use
