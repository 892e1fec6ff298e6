"""Tables of a comparison as HTML, for the page and for the exported file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.compare.compared_runs import MARKED, ComparedRuns, ComparisonRow
from dashboard.tables.prompt_pairs import Pairing
from dashboard.tables.run_settings import settings_table
from dashboard.ui.components import empty_state, mixed_mark, notice, rough, term
from dashboard.ui.templates import Html, joined, render
from fsd_core.analysis.cell_text import delta_text, displayed_columns
from fsd_core.analysis.cells import SIGNIFICANT, Cell, rare_of
from fsd_core.engines.engine_summary import measured_on
from fsd_core.formatting import DASH, decimals, p_value
from fsd_core.metrics import Metric, compared
from fsd_core.models.model_pairs import pair_title

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView

_FILE = "compare/comparison.html"
VERDICT_TONES = {"identical": "good", "non-inferior": "good", "worse": "bad"}
_TONES = {1: "good", -1: "bad", 0: ""}


def warnings_html(warnings: Sequence[str]) -> Html:
    """Return each sentence in its own box."""
    return joined(notice(warning, "warn") for warning in warnings)


def no_runs_html(experiments: Sequence[ExperimentView]) -> Html:
    """Return next steps if no run is chosen: start an experiment, or open one of the latest."""
    if not experiments:
        return empty_state(
            "Nothing to compare yet",
            "Runs appear here as soon as an experiment has begun.",
            ("experiments", "Start an experiment"),
        )
    return render(_FILE, "no_runs", experiments[:5])


def comparison_html(comparison: ComparedRuns) -> Html:
    """Return the table of metrics, with signed differences from the baseline."""
    if not comparison.rows:
        return Html()
    columns = displayed_columns([row.cells for row in comparison.rows])
    metrics = [compared()[column] for column in columns]
    return render(
        _FILE,
        "comparison",
        titles=[render(_FILE, "metric", term(metric.title, metric.explanation), metric.unit) for metric in metrics],
        rows=[_row(row, columns, comparison.margin) for row in comparison.rows],
        significant=SIGNIFICANT,
        marked=MARKED if comparison.marked else "",
        times=comparison.times,
        rare=[(row.name, rare) for row in comparison.rows if (rare := rare_of(row.cells))],
        slower=[row for row in comparison.rows if row.slowdown],
    )


def worst_prompts_html(comparison: ComparedRuns) -> Html:
    """Return links to each run's prompts of lowest acceptance."""
    rows = [row for row in comparison.rows if (row.run.metrics or {}).get("acceptance_deciles")]
    return render(_FILE, "worst_prompts", rows) if rows else Html()


def _row(row: ComparisonRow, columns: Sequence[int], margin: float | None) -> tuple[str, Html, list[str]]:
    """Return the class, name and cells of a run."""
    status = "" if row.run.status == "finished" else f", {row.run.status}"
    more = f"{pair_title(row.run.pair)}, {row.run.task}, {row.run.prompts_done} of {row.run.prompts_total} prompts, "
    more += f"seed {row.run.seed}{status}"
    if engine := measured_on(row.run):
        more += f". Measured on {engine}"
    tone = verdict = ""
    if row.verdict and margin is not None:
        tone, verdict = VERDICT_TONES.get(row.verdict.kind, ""), row.verdict.sentence(margin)
    cells = [_cell(row.cells[i], compared()[i]) for i in columns]
    return "baseline" if row.is_baseline else "", render(_FILE, "run", row, more, tone, verdict), cells


def _cell(cell: Cell, metric: Metric) -> str:
    if cell.estimate is None:
        return DASH
    text = metric.written(*cell.estimate)
    delta = _delta(cell, metric, decimals(*cell.estimate))
    return render(_FILE, "cell", rough(text.value, bool(text.mark)), text, mixed_mark(cell.mixed), cell.comment, delta)


def _delta(cell: Cell, metric: Metric, digits: int) -> Html:
    if cell.delta is None:
        return Html()
    text, ends = delta_text(cell.delta, metric, digits)
    notes: list[str] = []
    if (paired := cell.paired) is not None:
        differing = paired.only_a + paired.only_b
        text = text if differing else "no prompt differs"
        notes = [
            *(p_values(cell) if differing else ()),
            f"n = {paired.prompts_text}" if paired.design_effect > 1 or paired.sequential else f"n = {paired.n}",
        ]
    if cell.rare is not None:
        notes.append(f"runaways up to {cell.rare.share}")
    return render(_FILE, "delta", _TONES[cell.verdict(metric)], text, mixed_mark(cell.delta_mixed), ends, notes)


def p_values(cell: Cell) -> list[str]:
    """Return McNemar's p and, if several runs were tested, the Holm-corrected p; none where bounds of bets decide."""
    if cell.paired is None or cell.paired.sequential:
        return []
    p, corrected = cell.paired.p_value, cell.corrected_p
    return [p_value(p)] + ([] if corrected is None or corrected == p else [f"Holm {p_value(corrected)}"])


def settings_html(comparison: ComparedRuns, differences_only: bool) -> Html:
    """Return the settings table."""
    if not comparison.rows:
        return Html()
    table = settings_table(comparison.runs, differences_only)
    rows = [(None, row.name, values) for row, values in zip(comparison.rows, table.rows, strict=True)]
    return render(_FILE, "settings", [term(column) for column in table.columns], rows, table.hidden)


def pairing_summary(pairing: Pairing, name_a: str, name_b: str) -> Html:
    """Return the two-by-two table as a sentence."""
    return render(_FILE, "pairing", pairing, name_a, name_b)
