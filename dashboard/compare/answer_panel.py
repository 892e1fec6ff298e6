"""The answer of Compare: one sentence, the picture of accuracy against speed, and one line for each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from dashboard.compare.answer_html import answers_html, sentence_html
from dashboard.compare.section import Comparing
from dashboard.ui.components import KEEP_PLACE, show
from dashboard.ui.figure_address import addressed
from dashboard.ui.question import Asked, Updates
from dashboard.ui.templates import script
from dashboard.ui.view import View
from fsd_core.plots import tradeoff
from fsd_core.plots.gallery import FIRST_FIGURE

_SORTED = "answers sorted"


class AnswerPanel:
    """The panel's components as attributes."""

    def __init__(self) -> None:
        self.sentence = show(elem_id="answer")
        with gr.Row(equal_height=False, elem_classes=["cmp-first"]):
            with gr.Column(scale=5, min_width=340):
                self.picture = gr.Plot(show_label=False, elem_id="answer-picture")
            with gr.Column(scale=6, min_width=340):
                self.table = show(js_on_load=script("compare/answers_table.js") + KEEP_PLACE)

    @property
    def outputs(self) -> Sequence[Any]:
        """Components that :meth:`redraw` changes."""
        return [self.sentence, self.picture, self.table]

    def listen(self, view: View) -> None:
        """Attach the events."""
        view.on(self.table.click)

    def redraw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the updates. The picture comes after the table, in an answer of its own."""
        updates: Updates = {}
        order = str(asked.wanted(_SORTED) or "")[:40]
        state = now.pinned, now.margin, now.stages
        if asked.differs("answers", *state, order):
            updates |= {
                self.sentence: sentence_html(now.comparison()), self.table: answers_html(now.comparison(), order),
            }  # fmt: skip
        if asked.differs("picture", now.pinned, now.margin, now.begun, slow=True):
            comparison = now.comparison()
            figure = addressed(tradeoff.draw(tradeoff.info(comparison.runs), comparison.best), FIRST_FIGURE, now.query)
            updates[self.picture] = gr.Plot(figure, visible=bool(now.begun))
        return updates
