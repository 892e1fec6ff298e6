"""Comparison files: CSV for a spreadsheet, and one HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio

from dashboard.compare.answer_html import sentence_html
from dashboard.compare.compared_runs import ComparedRuns, ComparisonRow
from dashboard.compare.comparison_html import comparison_html, settings_html, warnings_html
from dashboard.compare.cost_html import folded_costs
from dashboard.compare.matched_html import matched_html
from dashboard.tables.spreadsheet import harmless
from dashboard.ui.quantities import moment
from dashboard.ui.templates import document, joined
from dashboard.ui.theme import STYLE_SHEETS
from fsd_core.analysis.cells import delta_columns, only_model
from fsd_core.analysis.matched_tables import records
from fsd_core.analysis.matching import match
from fsd_core.config.flat import settings_read
from fsd_core.plots.gallery import MATCHED, comparison_figures
from fsd_core.plots.style import EXPORT_CONFIG
from fsd_core.storage.elsewhere import origin_text, other_figures


def table(comparison: ComparedRuns) -> pd.DataFrame:
    """Return one row per run: its id and name, its settings, every single-number metric, and the differences from the
    baseline."""
    return pd.DataFrame([record(row, comparison.margin) for row in comparison.rows])


def csv_text(comparison: ComparedRuns) -> str:
    """Return :func:`table` as CSV, with the comparison's warnings as its last column, if there are any. ``float``
    columns keep every digit."""
    frame = table(comparison)
    return _csv(frame.assign(warnings=" ".join(comparison.warnings)) if comparison.warnings else frame)


def matched_csv(comparison: ComparedRuns) -> str:
    """Return rules at matched points as CSV, one row for each rule at each point. All are of the baseline's pair."""
    frame = pd.DataFrame(records(match(comparison.runs, comparison.baseline, comparison.prompts)))
    return _csv(frame.assign(pair=comparison.baseline.pair if comparison.baseline else None))


def _csv(frame: pd.DataFrame) -> str:
    texts = frame.select_dtypes(include=["object", "str"]).columns
    frame[texts] = frame[texts].map(harmless)
    return frame.to_csv(index=False)


def html(comparison: ComparedRuns, title: str = "Comparison of runs") -> str:
    """Return the warnings, tables and figures as a standalone page that includes plotly.js."""
    compared = comparison.runs, comparison.baseline, comparison.prompts
    figures = _figures(comparison_figures(*compared), with_plotly=True)
    matched = match(*compared)
    curves = _figures([MATCHED[name](*compared) for name in _CURVES] if matched.compared else [])
    page = document(
        "compare/export.html",
        "page",
        STYLE_SHEETS + _PAGE_CSS,
        title=title,
        lead=f"FSD Lab, {moment(datetime.now(UTC))}",
        answer=sentence_html(comparison, link=False),
        warnings=warnings_html(comparison.warnings),
        metrics=joined([comparison_html(comparison), folded_costs(comparison.rows)]),
        matched=matched_html(matched),
        settings=settings_html(comparison, differences_only=False),
    )
    before, between, after = page.split(_MARKER)
    return f"{before}{figures}{between}{curves}{after}"


_MARKER = "<!--figures-->"  # in the template: Plotly's scripts must not be escaped, and escaped data cannot contain it
_CURVES = ("matched", "equal_accuracy")


def _figures(figures: Sequence[go.Figure], *, with_plotly: bool = False) -> str:
    return "".join(
        pio.to_html(figure, full_html=False, include_plotlyjs=with_plotly and index == 0, config=EXPORT_CONFIG)
        for index, figure in enumerate(figures)
    )


_PAGE_CSS = """
body { margin: 0; color: var(--fsd-ink); font: 15px/1.5 'IBM Plex Sans', system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 32px 20px; }
.fsd-lead { margin-bottom: 16px; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(460px, 100%), 1fr)); gap: 16px;
  margin-top: 24px; }
.figures > div { min-width: 0; background: var(--fsd-surface); border: 1px solid var(--fsd-line); border-radius: 6px; }
"""


def record(row: ComparisonRow, margin: float | None) -> dict[str, Any]:
    """Return a row of :func:`table`."""
    run = row.run
    record: dict[str, Any] = {
        "run": run.id,
        "name": row.name,
        "baseline": row.is_baseline,
        "status": run.status,
        "experiment": run.experiment_name or "",
        "prompts_done": run.prompts_done,
        "reading_versions": ", ".join(map(str, run.reading_versions)),
    }
    record |= settings_read(run.config)
    record["task_version"] = run.task.partition("@")[2] or None
    record |= {key: value for key, value in (run.metrics or {}).items() if not isinstance(value, list | dict)}
    record |= {f"figure {name}": figure.value for name, figure in other_figures(run.metrics).items()}
    if run.measured_elsewhere:
        record["measured_elsewhere"] = origin_text(run)
    record["negative_log_likelihood_under"] = only_model(run) if run.metrics and not run.measured_elsewhere else None
    record |= {
        "margin": margin,
        "margin_share": None if margin is None else margin / 100,
        "verdict": row.verdict.sentence(margin) if row.verdict and margin is not None else None,
        "non_inferiority_p": row.verdict.p_value if row.verdict else None,
        "slower_because": ", ".join(row.slowdown.parts) if row.slowdown else None,
        "break_even_acceptance_length": row.slowdown.break_even if row.slowdown else None,
        "prompts_to_decide": row.verdict.prompts if row.verdict else None,
    }
    return record | delta_columns(row.cells)
