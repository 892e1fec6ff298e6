"""Addresses of figures: what a page tells a browser, which then offers the figure's files (``sharing.js``)."""

from __future__ import annotations

import plotly.graph_objects as go


def addressed(figure: go.Figure, name: str, query: str) -> go.Figure:
    """Note in a figure the query by which the server draws it again, for a file or a frame. Return the figure.

    ``name`` is one of ``gallery.FIGURE_NAMES``, and ``query`` names its runs.
    """
    return figure.update_layout(meta={"address": f"figure={name}&{query}"})
