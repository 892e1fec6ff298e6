"""Divergence between target and draft at the judged tokens of a run, with the threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go

from fsd_core.analysis.series import run_names
from fsd_core.formatting import percent
from fsd_core.plots.style import escape, figure, hover, note

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView

BELOW, ABOVE, THRESHOLD = "#0d9488", "#8a8f9c", "#db2777"


class DivergenceInfo(NamedTuple):
    """Bins of one run: ``edges`` has one more entry than ``counts``."""

    name: str
    divergence: str
    threshold: float | None
    edges: list[float]
    counts: list[int]


def judged(runs: Sequence[RunView]) -> list[RunView]:
    """Return the runs that recorded divergences."""
    return [run for run in runs if (run.metrics or {}).get("divergence_histogram")]


def telling(runs: Sequence[RunView]) -> RunView | None:
    """Return the run to display first: the loosest of a sweep, which shows the most."""
    tuned = [run for run in runs if run.decoding.threshold is not None]
    return (tuned or [*runs] or [None])[-1]


def info(run: RunView) -> DivergenceInfo:
    """Return the histogram of one run. Empty if it recorded no divergence."""
    histogram = (run.metrics or {}).get("divergence_histogram") or {"edges": [], "counts": []}
    return DivergenceInfo(
        run_names([run])[run.id],
        run.decoding.divergence or "js",  # what rules without a threshold record
        run.decoding.threshold,
        list(histogram["edges"]),
        list(histogram["counts"]),
    )


def draw(data: DivergenceInfo) -> go.Figure:
    """Draw bars of counts, coloured if they start below the threshold, and the threshold as a line."""
    unit = "" if data.divergence.endswith(("tv", "random")) else " in nats"
    fig = figure("Divergence at judged tokens", f"Divergence {data.divergence}{unit}", "Draft tokens", height=320)
    fig.update_layout(title_subtitle_text=escape(data.name), margin_t=66)
    if not sum(data.counts):
        return note(fig, "This run recorded no divergences.")
    widths = [high - low for low, high in zip(data.edges, data.edges[1:], strict=False)]
    below = [data.threshold is not None and low < data.threshold for low in data.edges[:-1]]
    total = sum(data.counts)
    fig.add_bar(
        x=[low + width / 2 for low, width in zip(data.edges, widths, strict=False)], y=data.counts, width=widths,
        marker={"color": [BELOW if b else ABOVE for b in below], "line": {"width": 0}}, showlegend=False,
        hoverinfo="text",
        hovertext=[
            hover(f"{low:.3g} to {low + width:.3g}", f"{count} tokens ({percent(count / total)})")
            for low, width, count in zip(data.edges, widths, data.counts, strict=False)
        ],
    )  # fmt: skip
    if data.threshold is not None and data.threshold <= data.edges[-1]:
        fig.add_vline(
            x=data.threshold, line={"color": THRESHOLD, "width": 2}, annotation_text=f"T = {data.threshold:g}",
            annotation_position="top right",
        )  # fmt: skip
    return fig.update_layout(bargap=0)
