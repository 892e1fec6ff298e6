"""Bounds that were measured in a run, for the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dashboard.ui.components import Column, table
from dashboard.ui.templates import Html, render
from fsd_core.config import VERIFIERS
from fsd_core.formatting import written
from fsd_core.plots.acceptance_by_drafts import MOST_DRAFTS, OPTIMA

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView

Rows = Mapping[int, Mapping[str, Any]]
BOUNDS_PRIORITY = 5
"""priority of a bounds job: after the playground, before experiments"""
_FILE = "tables/measured.html"


def of_run(run: RunView) -> list[dict[str, Any]]:
    """Return the measured bounds of a run, one for each temperature."""
    return sorted((run.metrics or {}).get("bounds", []), key=lambda bounds: bounds["temperature"])


def rates(bounds: Mapping[str, Any]) -> tuple[dict[str, list[float]], dict[str, tuple[str, str, Mapping[int, float]]]]:
    """Return optima and verifiers as ``plots.acceptance_by_drafts.draw`` takes them."""
    optima = {sampling: [row["rate"] for row in bounds["optima"][sampling]] for sampling in OPTIMA}
    verifiers: dict[str, tuple[str, str, Mapping[int, float]]] = {
        kind: (VERIFIERS[kind].title, VERIFIERS[kind].sampling, {row["drafts"]: row["rate"] for row in rows})
        for kind, rows in _installed(bounds).items()
    }
    return optima, verifiers


def by_sampling(bounds: Mapping[str, Any]) -> Iterator[tuple[str, Rows, list[tuple[str, Rows]]]]:
    """Yield for each sampling of drafts the optimum's title and rows, and the titles and rows of its verifiers.

    Rows are by the number of drafts.
    """
    for sampling, (title, _) in OPTIMA.items():
        verifiers = [
            (VERIFIERS[kind].title, _rows(rows))
            for kind, rows in _installed(bounds).items()
            if VERIFIERS[kind].sampling == sampling
        ]
        yield title, _rows(bounds["optima"][sampling]), verifiers


def _installed(bounds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bounds of installed verifiers. Only these declare how their drafts are sampled."""
    return {kind: rows for kind, rows in bounds["verifiers"].items() if kind in VERIFIERS}


def _rows(rows: Sequence[Mapping[str, Any]]) -> Rows:
    return {row["drafts"]: row for row in rows}


def gaps_html(bounds: Mapping[str, Any]) -> Html:
    """Return the acceptance of each optimum and verifier in percent, and each verifier's gap to its optimum in
    points."""
    columns = [Column("Percent accepted, by drafts"), *(Column(str(n), "num") for n in range(1, MOST_DRAFTS + 1))]
    rows = []
    for title, best, verifiers in by_sampling(bounds):
        rows.append([render(_FILE, "optimum", title, ""), *map(_best, best.values())])
        rows += [
            [name, *(_cell(by_drafts.get(n), row["rate"]) for n, row in best.items())] for name, by_drafts in verifiers
        ]
    return table(columns, rows, "Acceptance by the number of drafts")


def _best(row: Mapping[str, Any]) -> Html:
    ends = (None, None) if row["low"] is None else (100 * row["low"], 100 * row["high"])
    formatted = written(100 * row["rate"], *ends, points=True, digits=1)
    return render(_FILE, "optimum", formatted.value, f"{formatted.low} to {formatted.high}" if formatted.low else "")


def _cell(row: Mapping[str, Any] | None, best: float) -> Html:
    if row is None:
        return Html()
    gap = 100 * (best - row["rate"])
    return render(_FILE, "figure", f"{100 * row['rate']:.1f}", f"−{gap:.1f}" if gap >= 0.05 else "")
