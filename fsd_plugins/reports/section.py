"""The part of the page Compare that saves what it shows as a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import gradio as gr

from dashboard.compare.compared_runs import DEFAULT_MARGIN, ComparedRuns, compare
from dashboard.compare.export import INTERVALS, cell_lines, named_margin, named_runs, query_of
from dashboard.tables.run_record import settings_table
from dashboard.ui.components import show
from dashboard.ui.templates import render
from dashboard.ui.view import Asked, Part, Updates, Values, View
from fsd_core.analysis.cells import run_names
from fsd_core.analysis.matching import caption, match, tables
from fsd_core.errors import NotGiven, UnknownChoice
from fsd_core.frozen import check_fields
from fsd_core.plots.trade_offs import named_figure
from fsd_core.storage.catalogue import LONGEST_REPORT_TEXT, LONGEST_REPORT_TITLE, ReportContent, ReportTable
from fsd_core.texts import whole
from fsd_plugins.reports.frozen import frozen_figure, frozen_runs

if TYPE_CHECKING:
    from fsd_core.storage.repository import Repository


_FIGURES = {
    "tradeoff": "Accuracy against throughput", "acceptance_rate": "Acceptance rate against threshold",
    "acceptance_length": "Acceptance length against threshold", "answers": "Answers relative to the baseline",
    "throughput": "Throughput relative to the baseline", "positions": "Acceptance at each draft position",
    "requests": "Acceptance over requests", "matched": "Curves at matched points",
    "equal_accuracy": "Cost at equal accuracy", "draft_lengths": "Speed over the draft length",
    "divergences": "Divergences of the loosest setting",
}  # fmt: skip
_TABLES = {"metrics": "Metrics (table)", "settings": "Settings (table)", "matched_points": "Matched points (tables)"}
PARTS: Mapping[str, str] = _FIGURES | _TABLES
"""titles of the parts, by name"""


def frozen_comparison(comparison: ComparedRuns, title: str, text: str, parts: Iterable[str]) -> ReportContent:
    """Return a report of a comparison with these parts of it, as it is now. Figures that would be empty are left out.

    Raises ``InvalidSetting`` for an unknown part, or a title or text that is missing or too long.
    """
    names = list(dict.fromkeys(parts))
    if unknown := [name for name in names if name not in PARTS]:
        raise UnknownChoice(f"There is no part '{unknown[0][:40]}' of a comparison: expected {', '.join(PARTS)}.")
    if not comparison.runs:
        raise NotGiven("A report is of runs, and none is compared: choose runs first.")
    margin = DEFAULT_MARGIN if comparison.margin is None else comparison.margin
    compared_runs = comparison.runs, comparison.baseline, comparison.prompts
    figures = [
        named_figure(name, *compared_runs, margin=margin, marked=comparison.best) for name in names if name in _FIGURES
    ]
    made = {"metrics": _metrics, "settings": _settings, "matched_points": _matched}
    return check_fields(
        ReportContent,
        {"title": "Title", "text": "Text"},
        title=whole(title.strip()),
        text=whole(text),
        subject=comparison.subject,
        query=query_of(comparison.runs, comparison.baseline, comparison.margin),
        runs=frozen_runs(comparison.runs, run_names(comparison.runs)),
        figures=[frozen_figure(figure) for figure in figures if figure.data],
        tables=[table for name in names if name in made for table in made[name](comparison)],
    )


def _metrics(comparison: ComparedRuns) -> list[ReportTable]:
    columns = comparison.columns
    titles = [f"{it.title} ({it.unit})" if it.unit else it.title for it in (first.metric for first, *_ in columns)]
    rows = [
        [row.name + " (baseline)" * row.is_baseline, *("\n".join(cell_lines(cell)) for cell in cells)]
        for row, *cells in zip(comparison.rows, *columns, strict=True)
    ]
    note = " ".join([INTERVALS, *comparison.footnotes])
    return [ReportTable(title="Metrics", columns=["Setting", *titles], rows=rows, note=note)]


def _settings(comparison: ComparedRuns) -> list[ReportTable]:
    table = settings_table(comparison.runs, differences_only=True)
    rows = [[row.name, *values] for row, values in zip(comparison.rows, table.rows, strict=True)]
    note = f"{table.hidden} settings are the same in all runs." if table.hidden else ""
    return [ReportTable(title="Settings", columns=["Setting", *table.columns], rows=rows, note=note)]


def _matched(comparison: ComparedRuns) -> list[ReportTable]:
    matched = match(comparison.runs, comparison.baseline, comparison.prompts)
    return [
        ReportTable(
            title=table.title,
            columns=["Rule", *table.columns],
            rows=[
                [name, *(f"{cell.value or '–'}" + (f" ({cell.ends})" if cell.ends else "") for cell in cells)]
                for name, cells in table.rows
            ],
            note=" ".join([*table.verdicts, caption(matched)]),
        )
        for table in tables(matched)
    ]


_FIRST = ["tradeoff", "throughput", "metrics"]


class ReportForm(Part):
    """The folded form and its button."""

    def __init__(self, repository: Repository, _: Callable[[], None]) -> None:
        self.repository = repository
        with gr.Accordion("Save as a report", open=False, elem_id="save-report"):
            self.report_title = gr.Textbox(
                label="Report title", placeholder="What the report is about", max_length=LONGEST_REPORT_TITLE,
                max_lines=1,
            )  # fmt: skip
            self.text = gr.Textbox(
                label="Report text", placeholder="Markdown: what was measured, and what follows from it", lines=5,
                max_lines=20, max_length=LONGEST_REPORT_TEXT,
            )  # fmt: skip
            self.kept = gr.CheckboxGroup([(title, name) for name, title in PARTS.items()], value=_FIRST, label="Keep")
            with gr.Row():
                self.button = gr.Button("Save the report", variant="primary", scale=0, min_width=160)
            self.answer = show()
        self.forms = [self.report_title, self.text, self.kept]
        self.outputs = [self.answer]

    def listen(self, view: View, fields: Sequence[Any], query: Callable[[Values], str]) -> None:
        """Attach the event. ``query`` returns that of the comparison, of the values of ``fields`` at a click."""

        def save(values: Values, asked: Asked) -> Updates:
            named = {name: found[0] for name, found in parse_qs(query(values)).items()}
            comparison = compare(
                self.repository, named_runs(named.get("runs", "")), named.get("baseline"),
                named_margin(named.get("margin", "")),
            )  # fmt: skip
            title, text = str(values[self.report_title] or ""), str(values[self.text] or "")
            content = frozen_comparison(comparison, title, text, values[self.kept])
            self.repository.add_report(values.key, content, asked.person.name)
            asked.used(values, self.report_title, self.text)
            return {self.answer: render("reports/reports.html", "saved", values.key, content.title)}

        needs = ("author", "Saving a report")
        view.button(self.button, "save report", [*self.forms, *fields], save, self.answer, needs=needs)
