"""The style of all figures: one template that is readable on light and on dark.

Paper and plot are transparent. Texts and lines are mid-tones that keep their contrast on both themes; the theme's style
sheet may sharpen the text further. Only basic traces are used, since the pages draw with an older plotly.js than the
exports.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as _escape
from textwrap import wrap

import plotly.graph_objects as go

from fsd_core.conditions import MIXED_MARK

TEXT = "#71757f"  # at least 4.2:1 on white and on the dark theme's background
_GRID = "rgba(128, 132, 145, 0.22)"
AXIS = "rgba(128, 132, 145, 0.55)"
MUTED = "#8a8f9c"
_FONT = "'IBM Plex Sans', system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
EXPORT_CONFIG = {"showSendToCloud": False, "displaylogo": False, "responsive": True}

_AXES = {
    "gridcolor": _GRID,
    "linecolor": AXIS,
    "zeroline": False,
    "showline": True,
    "ticks": "outside",
    "tickcolor": AXIS,
    "ticklen": 4,
    "automargin": True,
    "title": {"standoff": 10, "font": {"size": 13}},
}
TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": _FONT, "size": 12, "color": TEXT},
        "title": {"font": {"size": 15}, "x": 0.02, "xref": "container", "xanchor": "left", "y": 0.97, "yanchor": "top"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 16, "r": 20, "t": 52, "b": 20},
        "legend": {
            "orientation": "h",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "x": 0.02,
            "xref": "container",
            "xanchor": "left",
            "maxheight": 0.9,
            "tracegroupgap": 0,
            "font": {"size": 12},
        },
        "hoverlabel": {"align": "left", "font": {"family": _FONT, "size": 12}},
        "xaxis": _AXES,
        "yaxis": _AXES,
        "dragmode": False,  # a drag scrolls the page on a phone; zooming stays in the tool bar
    }
)


def escape(text: object) -> str:
    """Return ``text`` so that plotly shows it literally. Plotly reads a subset of HTML in every name, label and hover
    text."""
    return _escape(str(text), quote=False)


def hover(title: str, *lines: str) -> str:
    """Return a hover text: a bold title, then lines, all escaped."""
    return "<br>".join([f"<b>{escape(title)}</b>", *(escape(line) for line in lines if line)])


def mixed_lines(names: Sequence[str]) -> list[str]:
    """Return lines of a hover text that name the conditions that differ within a speed. Empty if none differ."""
    return wrap(f"{MIXED_MARK} Conditions differ: {', '.join(names)}", 60) if names else []


def between(low: float, high: float, digits: int = 1) -> str:
    """Return an interval to put after a value in a hover text. Empty if it has no width."""
    return f" ({low:.{digits}f} to {high:.{digits}f})" if low != high else ""


def figure(title: str, x: str, y: str, height: int = 380) -> go.Figure:
    """Return an empty figure with a title, named axes and a fixed height in pixels."""
    fig = go.Figure()
    fig.update_layout(template=TEMPLATE, title_text=escape(title), height=height, hovermode="closest")
    fig.update_xaxes(title_text=escape(x))
    fig.update_yaxes(title_text=escape(y))
    return fig


def height_for(entries: int, least: int = 360) -> int:
    """Return the height of a figure with ``entries`` in its legend, which a phone shows below one another."""
    return least + 17 * max(0, entries - 3)


def note(figure: go.Figure, text: str) -> go.Figure:
    """Write in the middle of an empty figure why it is empty."""
    figure.add_annotation(
        text=escape(text), x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font={"size": 13, "color": TEXT}
    )
    return figure.update_xaxes(visible=False).update_yaxes(visible=False)


def faint(colour: str, alpha: float = 0.5) -> str:
    """Return ``#rrggbb`` as a translucent colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {alpha})"


def error_bar(value: list[float], low: list[float], high: list[float], colour: str) -> dict:
    """Return asymmetric error bars from the ends of intervals, in the units of the axis."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [h - v for v, h in zip(value, high, strict=True)],
        "arrayminus": [v - low_end for v, low_end in zip(value, low, strict=True)],
        "color": colour,
        "thickness": 1.2,
        "width": 3,
    }
