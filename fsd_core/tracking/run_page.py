"""Figures of a run for MLflow: one small page that needs no network and no script."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTHING_DRAFTED = "This run drafted nothing."
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Figures</title>
<style>body {{ margin: 0; background: white }} svg {{ width: 100%; max-width: 900px; height: auto }}</style>
</head><body>{svg}</body></html>
"""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, sharp and searchable
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e2dfd6",
    "text.color": "#1d2125",
    "axes.titlesize": "medium",
    "axes.titleweight": "bold",
    "axes.titlepad": 12,
    "figure.constrained_layout.w_pad": 0.12,
    "figure.constrained_layout.h_pad": 0.12,
}


def write_figures(path: Path, metrics: dict[str, Any], divergence: str) -> None:
    """Write acceptance by draft position and the histogram of divergences as one HTML file of about 20 KB.

    ``divergence`` is the name of the recorded divergence.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.5, 3.4), layout="constrained")
        _draw(figure, metrics, divergence)
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = svg.getvalue()
    path.write_text(_PAGE.format(svg=text[text.index("<svg") :]), encoding="utf-8")


def _draw(figure: Figure, metrics: dict[str, Any], divergence: str) -> None:
    rates = metrics.get("acceptance_at_position") or []
    histogram = metrics.get("divergence_histogram") or {}
    if not rates and not histogram:
        figure.text(0.5, 0.5, NOTHING_DRAFTED, ha="center", size="large")
        return
    left, right = figure.subplots(1, 2)
    left.bar([i + 1 for i in range(len(rates))], rates, color="#0f6b65")
    left.set(title="Acceptance by position", xlabel="Position in the draft", ylim=(0, 1))
    left.set(ylabel="Share of rounds that accept it")
    left.locator_params(axis="x", integer=True)
    if histogram:
        right.stairs(histogram["counts"], histogram["edges"], fill=True, color="#a86400")
        right.locator_params(axis="y", integer=True)
    else:
        right.text(0.5, 0.5, "Nothing was judged.", ha="center", transform=right.transAxes)
        right.set(xticks=[], yticks=[])
    unit = "" if divergence.endswith(("tv", "random")) else ", nats"
    right.set(title="Divergence", xlabel=f"Divergence {divergence}{unit}", ylabel="Judged draft tokens")
