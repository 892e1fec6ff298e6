"""The form that changes what a use asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.review.use_form import UseForm
from dashboard.ui.components import notice, show
from dashboard.ui.question import Asked, Updates, Values, count_in
from dashboard.ui.view import View

if TYPE_CHECKING:
    from fsd_core.review.history import Use
    from fsd_core.review.review_service import ReviewService


class UseChange:
    """The form's components as attributes.

    ``seen`` is the number of the log entry that the form was filled in from. A later description fills in only the
    fields that nobody has changed.
    """

    def __init__(self, service: ReviewService) -> None:
        self.service = service
        with gr.Accordion("Change what it asks for", open=False):
            self.form = UseForm()
            self.change = gr.Button("Change the use")
            self.answer = show()
        self.seen = gr.Textbox(visible="hidden")
        self.forms: list[Any] = [self.seen, *self.form.fields]

    def listen(self, view: View) -> None:
        """Attach the event."""
        view.button(self.change, "change the use", self.forms, self.change_use, self.answer)

    def redraw(self, asked: Asked, use: Use) -> None:
        """Fill in what the use asks for, where the form holds what it asked for before."""
        seen = count_in(asked[self.seen])
        if seen == use.described_at:
            return
        former = self.form.texts(described) if (described := use.description_at(seen)) else None
        for field, text in self.form.texts(use.described).items():
            if former is None or asked[field] == former[field]:
                asked.fill(field, text)
        asked.fill(self.seen, str(use.described_at))

    def change_use(self, values: Values, asked: Asked) -> Updates:
        """Change the use that the address names."""
        changes, seen = self.form.read(values), count_in(values[self.seen])
        self.service.change_use(asked.person, asked.address.get("use", ""), changes, seen, values.key)
        return {self.answer: notice("Changed, with your name in the log.")}
