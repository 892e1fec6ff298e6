"""The picture of a run that MLflow keeps: one page that needs no network."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

NOTHING = "This run drafted nothing."


def write_figures(path: Path, metrics: dict[str, Any]) -> None:
    """Acceptance by position of the draft and the histogram of divergences, as one HTML file of about 5 MB.

    The size is that of the plotting library, which is in the file because MLflow shows each file by itself.
    """
    from plotly.graph_objects import Bar, Figure
    from plotly.subplots import make_subplots

    figure: Figure = make_subplots(rows=1, cols=2, subplot_titles=("Acceptance by position", "Divergence"))
    rates = metrics.get("acceptance_at_position") or []
    figure.add_trace(Bar(x=[i + 1 for i in range(len(rates))], y=rates, name="accepted"), row=1, col=1)
    histogram = metrics.get("divergence_histogram") or {"edges": [], "counts": []}
    edges = histogram["edges"]
    centres = [(low + high) / 2 for low, high in pairwise(edges)]
    widths = [high - low for low, high in pairwise(edges)]
    figure.add_trace(Bar(x=centres, y=histogram["counts"], width=widths, name="judged tokens"), row=1, col=2)
    figure.update_xaxes(title_text="Position in the draft", dtick=1, row=1, col=1)
    figure.update_yaxes(title_text="Share of rounds that accept it", range=[0, 1], row=1, col=1)
    figure.update_xaxes(title_text="Divergence", row=1, col=2)
    figure.update_yaxes(title_text="Judged draft tokens", row=1, col=2)
    figure.update_layout(template="plotly_white", showlegend=False, height=420)
    if not rates and not edges:
        figure.add_annotation(text=NOTHING, xref="paper", yref="paper", x=0.5, y=0.5, showarrow=False)
    figure.write_html(path, include_plotlyjs=True, config={"showSendToCloud": False})
