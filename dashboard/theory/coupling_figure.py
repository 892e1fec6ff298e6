"""Figure of the optimal coupling of drafts and output token, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fsd_core.formatting import percent
from fsd_core.plots.style import MUTED, faint, figure, hover

ACCEPTED = "#0d9488"


def draw(names: Sequence[str], coupling: Mapping[tuple[int, ...], Sequence[float]]) -> go.Figure:
    """Return a figure with a column for each set of drafts and a row for each possible output token.

    ``names`` are those of the tokens. ``coupling`` maps drafts, in any order, to the weight of every token with them. A
    cell is teal if its token is one of the drafts.
    """
    merged: dict[tuple[int, ...], list[float]] = {}
    for drafts, weights in coupling.items():
        row = merged.setdefault(tuple(sorted(drafts)), [0.0] * len(names))
        merged[tuple(sorted(drafts))] = [a + float(b) for a, b in zip(row, weights, strict=True)]
    columns = sorted(merged, key=lambda drafts: -sum(merged[drafts]))
    labels = [" ".join(names[x] for x in drafts) for drafts in columns]
    chart = figure("The best coupling", "What was drafted, most often first", "Token written", height=430)
    top = max((max(weights) for weights in merged.values()), default=1.0) or 1.0
    for accepted, colour in ((True, ACCEPTED), (False, MUTED)):
        cells = [
            [merged[drafts][x] if (x in drafts) == accepted and merged[drafts][x] > 0 else None for drafts in columns]
            for x in range(len(names))
        ]
        chart.add_heatmap(
            x=labels, y=list(names), z=cells, zmin=0, zmax=top, xgap=1, ygap=1, showscale=False, hoverinfo="text",
            hoverongaps=False, colorscale=[[0, faint(colour, 0.08)], [1, colour]],
            hovertext=[
                [
                    hover(f"{name} written", f"drafted: {label}", f"{percent(cell or 0, digits=2)} of all positions",
                          "accepted" if accepted else "not among the drafts")
                    for label, cell in zip(labels, row, strict=True)
                ]
                for name, row in zip(names, cells, strict=True)
            ],
        )  # fmt: skip
    chart.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return chart.update_xaxes(type="category", showgrid=False)
