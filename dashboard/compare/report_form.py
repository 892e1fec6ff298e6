"""Saving a comparison as a report: a title, a text, and the figures and tables to keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import gradio as gr

from dashboard.compare.compared_runs import compare
from dashboard.compare.export_links import named_margin, named_runs
from dashboard.compare.report_parts import PARTS, frozen_comparison
from dashboard.compare.section import Comparing, Section
from dashboard.ui.components import show
from dashboard.ui.question import Asked, Updates, Values
from dashboard.ui.templates import render
from dashboard.ui.view import View
from fsd_core.storage.report_content import LONGEST_REPORT_TEXT, LONGEST_REPORT_TITLE

_FIRST = ["tradeoff", "throughput", "metrics"]


class ReportForm(Section):
    """The form and its button."""

    name = "report"
    title = "Save as a report"
    parts = ()

    def build(self) -> None:
        """Make the form."""
        self.report_title = gr.Textbox(
            label="Report title", placeholder="What the report is about", max_length=LONGEST_REPORT_TITLE, max_lines=1
        )
        self.text = gr.Textbox(
            label="Report text", placeholder="Markdown: what was measured, and what follows from it", lines=5,
            max_lines=20, max_length=LONGEST_REPORT_TEXT,
        )  # fmt: skip
        self.kept = gr.CheckboxGroup([(title, name) for name, title in PARTS.items()], value=_FIRST, label="Keep")
        with gr.Row():
            self.button = gr.Button("Save the report", variant="primary", scale=0, min_width=160)
        self.answer = show()

    @property
    def forms(self) -> Sequence[Any]:
        """Components that the button reads, and empties once their text is saved."""
        return [self.report_title, self.text, self.kept]

    @property
    def outputs(self) -> Sequence[Any]:
        return [self.answer]

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return nothing: what is compared is read at a click."""
        return {}

    def listen(self, view: View, link: gr.Textbox) -> None:
        """Attach the event. ``link`` holds the address of the comparison at a click."""

        def save(values: Values, asked: Asked) -> Updates:
            query = {name: found[0] for name, found in parse_qs(urlsplit(str(values[link])).query).items()}
            comparison = compare(
                self.repository, named_runs(query.get("runs", "")), query.get("baseline"),
                named_margin(query.get("margin", "")),
            )  # fmt: skip
            title, text = str(values[self.report_title] or ""), str(values[self.text] or "")
            content = frozen_comparison(comparison, title, text, values[self.kept])
            self.repository.add_report(values.key, content, asked.person.name)
            asked.used(values, self.report_title, self.text)
            return {self.answer: render("compare/comparison.html", "saved_report", values.key, content.title)}

        view.button(self.button, "save report", [*self.forms, link], save, self.answer)
