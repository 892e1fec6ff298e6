"""The bounds that were measured in a run, for the page."""

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
"""of its job: after the playground, before experiments"""
_FILE = "tables/measured.html"


def of_run(run: RunView) -> list[dict[str, Any]]:
    """What was measured, one for each temperature."""
    return sorted((run.metrics or {}).get("bounds", []), key=lambda bounds: bounds["temperature"])


def rates(bounds: Mapping[str, Any]) -> tuple[dict[str, list[float]], dict[str, tuple[str, str, dict[int, float]]]]:
    """Optima and verifiers as ``figures.acceptance_by_drafts`` draws them."""
    optima = {sampling: [row["rate"] for row in bounds["optima"][sampling]] for sampling in OPTIMA}
    verifiers = {
        kind: (VERIFIERS[kind].title, VERIFIERS[kind].sampling, {row["drafts"]: row["rate"] for row in rows})
        for kind, rows in _known(bounds).items()
    }
    return optima, verifiers


def by_sampling(bounds: Mapping[str, Any]) -> Iterator[tuple[str, Rows, list[tuple[str, Rows]]]]:
    """For each way to draft: the optimum's title and rows, and titles and rows of its verifiers. Rows by the number of
    drafts."""
    for sampling, (title, _) in OPTIMA.items():
        own = [
            (VERIFIERS[kind].title, _rows(rows))
            for kind, rows in _known(bounds).items()
            if VERIFIERS[kind].sampling == sampling
        ]
        yield title, _rows(bounds["optima"][sampling]), own


def _known(bounds: Mapping[str, Any]) -> dict[str, Any]:
    """What was measured of the verifiers that are installed; only they say how their drafts are drawn."""
    return {kind: rows for kind, rows in bounds["verifiers"].items() if kind in VERIFIERS}


def _rows(rows: Sequence[Mapping[str, Any]]) -> Rows:
    return {row["drafts"]: row for row in rows}


def gaps_html(bounds: Mapping[str, Any]) -> Html:
    """Acceptance in percent of each optimum and each verifier, and how many points a verifier lies below the optimum
    of its drafts."""
    columns = [Column("Percent accepted, by drafts"), *(Column(str(n), "num") for n in range(1, MOST_DRAFTS + 1))]
    rows = []
    for title, best, verifiers in by_sampling(bounds):
        rows.append([render(_FILE, "optimum", title, ""), *map(_best, best.values())])
        rows += [[name, *(_cell(own.get(n), row["rate"]) for n, row in best.items())] for name, own in verifiers]
    return table(columns, rows, "Acceptance by the number of drafts")


def _best(row: Mapping[str, Any]) -> Html:
    ends = (None, None) if row["low"] is None else (100 * row["low"], 100 * row["high"])
    told = written(100 * row["rate"], *ends, points=True, digits=1)
    return render(_FILE, "optimum", told.value, f"{told.low} to {told.high}" if told.low else "")


def _cell(row: Mapping[str, Any] | None, best: float) -> Html:
    if row is None:
        return Html()
    gap = 100 * (best - row["rate"])
    return render(_FILE, "figure", f"{100 * row['rate']:.1f}", f"−{gap:.1f}" if gap >= 0.05 else "")
