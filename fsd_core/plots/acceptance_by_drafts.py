"""Acceptance by the number of drafts: the optimum of each sampling scheme, and what the verifiers reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fsd_core.formatting import percent
from fsd_core.plots.style import figure, hover
from fsd_core.theory.samplings import MOST_DRAFTS as MOST_DRAFTS

OPTIMA = {
    "with_replacement": ("Optimum, with replacement", "#0d9488"),
    "without_replacement": ("Optimum, without replacement", "#8b5cf6"),
    "greedy": ("Optimum, greedy", "#ea6a12"),
}
"""names and colours by sampling scheme; verifiers have the colour of their optimum"""
_DASHES = ("dot", "dash", "dashdot", "longdash")
_SYMBOLS = ("circle-open", "square-open", "diamond-open", "triangle-up-open")


def draw(
    optima: Mapping[str, Sequence[float]],
    verifiers: Mapping[str, tuple[str, str, Mapping[int, float]]],
    title: str = "Acceptance by the number of drafts",
) -> go.Figure:
    """Draw acceptance over the number of drafts.

    ``optima``: rates for 1, 2, … drafts, by sampling scheme. ``verifiers``: title, sampling scheme, and rates by number
    of drafts.
    """
    fig = figure(title, "Drafts per position", "Acceptance (%)", height=430)
    for sampling, rates in optima.items():
        name, colour = OPTIMA[sampling]
        _line(fig, name, dict(enumerate(rates, 1)), {"color": colour, "width": 2.5}, None)
    seen = dict.fromkeys(OPTIMA, 0)
    for name, sampling, rates in verifiers.values():
        index, seen[sampling] = seen[sampling], seen[sampling] + 1
        line = {"color": OPTIMA[sampling][1], "width": 1.2, "dash": _DASHES[index % len(_DASHES)]}
        _line(
            fig,
            name if len(rates) > 1 else f"{name} ({next(iter(rates))} drafts)",
            rates,
            line,
            _SYMBOLS[index % len(_SYMBOLS)],
        )
    fig.update_xaxes(dtick=1)
    fig.update_yaxes(range=[0, 102])
    return fig.update_layout(margin_b=120)


def _line(fig: go.Figure, title: str, rates: Mapping[int, float], line: dict, symbol: str | None) -> None:
    fig.add_scatter(
        x=list(rates), y=[100 * rate for rate in rates.values()], name=title, line=line,
        mode="lines" if symbol is None else "lines+markers", marker={"symbol": symbol or "circle", "size": 7},
        hoverinfo="text",
        hovertext=[
            hover(title, f"{n} draft{'' if n == 1 else 's'}: {percent(rate, digits=2)}") for n, rate in rates.items()
        ],
    )  # fmt: skip
