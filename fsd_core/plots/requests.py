"""How acceptance spreads over requests: a mean hides the prompts on which a setting gains nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go

from fsd_core.analysis.series import families, measured, metrics, run_names
from fsd_core.formatting import percent
from fsd_core.plots.style import escape, faint, figure, height_for, hover, note

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView


class RequestCurve(NamedTuple):
    """One run: the least acceptance rate of its prompts, the deciles and the greatest, from 0 to 1."""

    name: str
    colour: str
    symbol: str
    deciles: list[float]


class RequestsInfo(NamedTuple):
    """One curve per run that drafts."""

    curves: list[RequestCurve]


def info(runs: Sequence[RunView]) -> RequestsInfo:
    """The curves of the runs that draft; of none that an earlier version measured and nothing computed anew."""
    drafted = [run for run in measured(runs) if metrics(run).get("acceptance_deciles")]
    names = run_names(drafted)
    curves = []
    for family in families(drafted):
        for rank, run in enumerate(family.runs, start=1):
            colour = faint(family.colour, 0.3 + 0.7 * rank / len(family.runs))  # the loosest is the strongest
            curves.append(RequestCurve(names[run.id], colour, family.symbol, metrics(run)["acceptance_deciles"]))
    return RequestsInfo(curves)


def draw(data: RequestsInfo) -> go.Figure:
    """The share of requests that accept no more than so much; the further right, the better."""
    drawn = figure(
        "Acceptance over requests",
        "Acceptance rate of a request (%)",
        "Requests with no more (%)",
        height=height_for(len(data.curves)),
    )
    if not data.curves:
        return note(drawn, "No chosen run drafts tokens.")
    shares = list(range(0, 101, 10))
    for curve in data.curves:
        rates = [100 * rate for rate in curve.deciles]
        drawn.add_scatter(
            x=rates, y=shares, mode="lines+markers", name=escape(curve.name),
            marker={"size": 6, "symbol": curve.symbol}, line={"color": curve.colour, "width": 1.8},
            hoverinfo="text", hovertext=[_hover(curve.name, *point) for point in zip(rates, shares, strict=True)],
        )  # fmt: skip
    return drawn.update_yaxes(range=[-2, 102])


def _hover(name: str, rate: float, share: int) -> str:
    ends = {0: "The request with the least", 100: "The request with the most"}
    said = ends.get(share) or f"{share} % of requests accept no more"
    return hover(name, f"{said}: {percent(rate / 100)}")
