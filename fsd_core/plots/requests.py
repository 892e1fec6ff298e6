"""Distribution of acceptance over requests: a mean hides the prompts on which a setting gains nothing."""

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
    """One run: the lowest acceptance rate of its prompts, the deciles and the highest, from 0 to 1."""

    name: str
    colour: str
    symbol: str
    deciles: list[float]


class RequestsInfo(NamedTuple):
    """One curve per run that drafts."""

    curves: list[RequestCurve]


def info(runs: Sequence[RunView]) -> RequestsInfo:
    """Return the curves of the runs that draft. Runs of an earlier version have none until their metrics are
    recomputed."""
    drafted = [run for run in measured(runs) if metrics(run).get("acceptance_deciles")]
    names = run_names(drafted)
    curves = []
    for family in families(drafted):
        for rank, run in enumerate(family.runs, start=1):
            colour = faint(family.colour, 0.3 + 0.7 * rank / len(family.runs))  # the loosest is the strongest
            curves.append(RequestCurve(names[run.id], colour, family.symbol, metrics(run)["acceptance_deciles"]))
    return RequestsInfo(curves)


def draw(data: RequestsInfo) -> go.Figure:
    """Draw the share of requests that accept no more than each rate. Further right is better."""
    fig = figure(
        "Acceptance over requests",
        "Acceptance rate of a request (%)",
        "Requests with no more (%)",
        height=height_for(len(data.curves)),
    )
    if not data.curves:
        return note(fig, "No chosen run drafts tokens.")
    shares = list(range(0, 101, 10))
    for curve in data.curves:
        rates = [100 * rate for rate in curve.deciles]
        fig.add_scatter(
            x=rates, y=shares, mode="lines+markers", name=escape(curve.name),
            marker={"size": 6, "symbol": curve.symbol}, line={"color": curve.colour, "width": 1.8},
            hoverinfo="text", hovertext=[_hover(curve.name, *point) for point in zip(rates, shares, strict=True)],
        )  # fmt: skip
    return fig.update_yaxes(range=[-2, 102])


def _hover(name: str, rate: float, share: int) -> str:
    ends = {0: "The request with the least", 100: "The request with the most"}
    text = ends.get(share) or f"{share} % of requests accept no more"
    return hover(name, f"{text}: {percent(rate / 100)}")
