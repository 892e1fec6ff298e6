"""Parts of a comparison that a report can keep: figures by name, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dashboard.compare.compared_runs import DEFAULT_MARGIN, ComparedRuns
from dashboard.compare.export_links import query_of
from dashboard.compare.latex import INTERVALS, cell_lines
from dashboard.tables.run_settings import settings_table
from fsd_core.analysis.cell_text import displayed_columns
from fsd_core.analysis.matched_tables import caption, tables
from fsd_core.analysis.matching import match
from fsd_core.analysis.series import run_names
from fsd_core.errors import NotGiven, UnknownChoice
from fsd_core.frozen import check_fields
from fsd_core.metrics import compared
from fsd_core.plots.gallery import named_figure
from fsd_core.reports.freezing import frozen_figure, frozen_runs
from fsd_core.storage.report_content import ReportContent, ReportTable
from fsd_core.texts import whole

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
    indices = displayed_columns([row.cells for row in comparison.rows])
    metrics = [compared()[i] for i in indices]
    titles = [f"{metric.title} ({metric.unit})" if metric.unit else metric.title for metric in metrics]
    rows = [
        [
            row.name + " (baseline)" * row.is_baseline,
            *("\n".join(cell_lines(row.cells[i], compared()[i])) for i in indices),
        ]
        for row in comparison.rows
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
