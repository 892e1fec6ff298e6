"""Costs of runs at the price per hour of their machines, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dashboard.ui.components import mixed_mark, rough
from dashboard.ui.templates import Html, render
from fsd_core.analysis.cells import estimate
from fsd_core.evaluation.run_costs import cost_figures
from fsd_core.formatting import DASH
from fsd_core.metrics import METRICS, Metric

if TYPE_CHECKING:
    from dashboard.compare.compared_runs import ComparisonRow
    from fsd_core.storage.records import Prompts, RunView

_FILE = "compare/costs.html"
_COLUMNS = "cost_per_million_tokens", "cost_per_solved_task", "joules_per_token", "peak_memory"


def cost_table(rows: Sequence[ComparisonRow]) -> Html:
    """Return the table, without columns that no run has; nothing if all are empty."""
    metrics = [METRICS[key] for key in _COLUMNS if any(estimate(row.run, METRICS[key]) for row in rows)]
    if not metrics:
        return Html()
    titles = ["Price per hour", *(render(_FILE, "title", metric) for metric in metrics)]
    return render(_FILE, "costs", titles, [_row(row, metrics) for row in rows])


def folded_costs(rows: Sequence[ComparisonRow]) -> Html:
    """Return the table folded, for a file; nothing if it is empty."""
    table = cost_table(rows)
    return render(_FILE, "folded", table) if table else table


def at_price(rows: Sequence[ComparisonRow], prompts: Prompts, price: float) -> list[ComparisonRow]:
    """Return the runs as if each had been measured at this price per hour. Without prompts a run has no cost."""
    return [row._replace(run=_priced(row.run, prompts, price)) for row in rows]


def _priced(run: RunView, prompts: Prompts, price: float) -> RunView:
    counts = [*prompts.get(run.id, {}).values()]
    return replace(run, metrics=(run.metrics or {}) | cost_figures(counts, price)) if counts else run


def _row(row: ComparisonRow, metrics: Sequence[Metric]) -> tuple[str, str, list[str]]:
    """Return the class, name and cells of a run."""
    price = (row.run.metrics or {}).get("price_per_hour")
    return "", row.name, [f"{price:g}" if price else DASH, *(_cell(row.run, metric) for metric in metrics)]


def _cell(run: RunView, metric: Metric) -> str:
    """Return a figure with its mark and its interval."""
    found = estimate(run, metric)
    if found is None:
        return DASH
    digits = metric.digits if found.low is None else None
    text = metric.written(*found, digits=digits)
    return render(
        _FILE, "cell", rough(text.value, bool(text.mark)), text, mixed_mark(run.speed_mixed if metric.timed else ())
    )
