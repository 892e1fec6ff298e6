"""Acceptance by position in the draft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go

from fsd_core.analysis.series import families, measured, metrics, run_names
from fsd_core.formatting import percent
from fsd_core.plots.style import escape, faint, figure, height_for, hover, note

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView


class PositionCurve(NamedTuple):
    """One run: a share from 0 to 1 per draft position.

    ``unconditional`` counts the rounds that accepted the position. ``conditional`` counts them among the rounds that
    accepted all earlier positions, and is ``None`` if no round did.
    """

    name: str
    colour: str
    symbol: str
    unconditional: list[float]
    conditional: list[float | None]


class PositionsInfo(NamedTuple):
    """One curve per run that drafts."""

    curves: list[PositionCurve]


def info(runs: Sequence[RunView]) -> PositionsInfo:
    """Return the curves of the runs that draft."""
    drafted = [run for run in measured(runs) if metrics(run).get("acceptance_at_position")]
    names = run_names(drafted)
    curves = []
    for family in families(drafted):
        for rank, run in enumerate(family.runs, start=1):
            colour = faint(family.colour, 0.3 + 0.7 * rank / len(family.runs))  # the loosest is the strongest
            shares = (metrics(run)[key] for key in ("acceptance_at_position", "conditional_acceptance_at_position"))
            curves.append(PositionCurve(names[run.id], colour, family.symbol, *map(list, shares)))
    return PositionsInfo(curves)


def draw(data: PositionsInfo) -> go.Figure:
    """Draw unconditional shares as lines. Conditional ones are in the hover text."""
    fig = figure(
        "Acceptance at each draft position",
        "Position in the draft",
        "Rounds that accept it (%)",
        height=height_for(len(data.curves)),
    )
    if not data.curves:
        return note(fig, "No chosen run drafts tokens.")
    for curve in data.curves:
        positions = list(range(1, len(curve.unconditional) + 1))
        fig.add_scatter(
            x=positions, y=[100 * share for share in curve.unconditional], mode="lines+markers",
            name=escape(curve.name), marker={"size": 7, "symbol": curve.symbol},
            line={"color": curve.colour, "width": 1.8},
            hoverinfo="text", hovertext=[_hover(curve, position) for position in positions],
        )  # fmt: skip
    fig.update_xaxes(dtick=1)
    return fig.update_yaxes(range=[0, 102])


def _hover(curve: PositionCurve, position: int) -> str:
    conditional = curve.conditional[position - 1]
    return hover(
        curve.name,
        f"Position {position}: accepted in {percent(curve.unconditional[position - 1])} of rounds",
        "" if conditional is None else f"in {percent(conditional)} of those that accepted all before it",
    )
