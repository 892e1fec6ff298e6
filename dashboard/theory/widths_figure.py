"""Figure of how many beams a layer of drafts can fill, for two joint laws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from fsd_core.formatting import percent
from fsd_core.plots.style import TEXT, figure, hover
from fsd_core.rules import SpeculativeBeams
from fsd_core.theory.widths import acceptance_counts, layer_width, rejected_shares

FILLED, EMPTY = "#be185d", "#9ca3af"


def draw(p: Sequence[float], q: Sequence[float], drafts: int) -> go.Figure:
    """Return a bar for each number of beams: the chance that ``drafts`` drafts, drawn from ``q`` with replacement, fill
    them. Those up to DSBD's width at its default confidence are coloured."""
    confidence = SpeculativeBeams().confidence
    chances = acceptance_counts([float(share) for share in rejected_shares(np.array(p), np.array(q), drafts)])
    filled = np.cumsum(chances[::-1])[::-1][1:]
    width = layer_width(chances, confidence, 0, drafts)
    beams = list(range(1, drafts + 1))
    chart = figure("Beams that drafts fill", "Beams of a layer", "Chance that the drafts fill them (%)", height=380)
    chart.add_bar(
        x=beams, y=[100 * chance for chance in filled],
        marker_color=[FILLED if count <= width else EMPTY for count in beams], hoverinfo="text",
        hovertext=[
            hover(f"{count} of {drafts} drafts", f"{percent(float(chance), digits=2)} of all layers")
            for count, chance in zip(beams, filled, strict=True)
        ],
    )  # fmt: skip
    chart.add_hline(
        y=100 * confidence, line={"dash": "dot", "color": TEXT}, annotation_text=f"confidence {confidence:g}"
    )
    chart.update_xaxes(dtick=1)
    return chart.update_yaxes(range=[0, 104])
