"""The style of all figures: one template for light and dark, and labels that cover nothing.

The style of all figures: one template that is readable on light and on dark.

Paper and plot are transparent. Texts and lines are mid-tones that keep their contrast on both themes; the theme's style
sheet may sharpen the text further. Only basic traces are used, since the pages draw with an older plotly.js than the
exports.

Deterministic placement of point labels, so that none covers another label or a mark.

A figure is as wide as its page allows, so a position is used only if it is free at every size from a phone to a wide
screen. A label without a free position is left out; hovering shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as _escape
from itertools import product
from textwrap import wrap
from typing import Generic, NamedTuple, TypeVar

import plotly.graph_objects as go

from fsd_core.metrics import MIXED_MARK
from fsd_core.statistics.intervals import Estimate

_T = TypeVar("_T")
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


def between(estimate: Estimate, digits: int = 1) -> str:
    """Return an interval to put after its value in a hover text. Empty if it has no width."""
    low, high = estimate.ends
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


def error_bar(estimates: Sequence[Estimate], colour: str) -> dict:
    """Return asymmetric error bars, in the units of the axis."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [estimate.ends[1] - estimate.value for estimate in estimates],
        "arrayminus": [estimate.value - estimate.ends[0] for estimate in estimates],
        "color": colour,
        "thickness": 1.2,
        "width": 3,
    }


class Line(NamedTuple, Generic[_T]):
    """What belongs together in a figure: one entry of its legend."""

    name: str
    colour: str
    symbol: str
    points: list[_T]


def name_rows(fig: go.Figure, names: Sequence[str], mark: tuple[float, float]) -> go.Figure:
    """Write a name above each row of marks, and dot the line at 1 beside them, from and to these places of a row.

    Beside their marks the names would take half of a narrow screen.
    """
    for i, name in enumerate(names):
        fig.add_annotation(
            text=escape(name), x=0, xref="paper", y=i - 0.2, showarrow=False, xanchor="left", yanchor="middle",
            font={"size": 12, "color": TEXT},
        )  # fmt: skip
        line = {"dash": "dot", "width": 1.6, "color": MUTED}
        fig.add_shape(type="line", x0=1, x1=1, y0=i + mark[0], y1=i + mark[1], line=line)
    fig.update_yaxes(range=[len(names) - 0.4, -0.5], showgrid=False, ticks="", showticklabels=False)
    return fig.update_yaxes(title_text=None)


FIGURE_SIZES = tuple(product((240, 360, 560, 1100), (150, 330)))
"""widths and heights of the plot in pixels, the range in which a figure may be drawn"""
LABEL_FONT = 11
_LETTER, _LINE, _GAP, _MARK = 6.3, 15, 7, 6
"""pixels: letter width and line height of that font, distance from a mark's centre to its label, radius of a mark"""
_EDGE = 14
"""pixels that a label may extend beyond the plot, into the margin"""
PLACES = {
    "top right": (1, 1), "bottom left": (-1, -1), "top left": (-1, 1), "bottom right": (1, -1), "top center": (0, 1),
    "bottom center": (0, -1), "middle right": (1, 0), "middle left": (-1, 0),
}  # fmt: skip
"""side of the mark on which its label is, (right, up), by plotly's name; the best first"""


class Box(NamedTuple):
    """A rectangle in pixels, from the plot's lower left corner."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )


def places(points: Sequence[tuple[float, float]], texts: Sequence[str]) -> list[str | None]:
    """Return the position of each point's text, one of ``PLACES``.

    It is ``None`` for an empty text and if no position is free. ``points``: 0 to 1 from left to right and from bottom
    to top of the plot.
    """
    marks = [[_mark(point, size) for point in points] for size in FIGURE_SIZES]
    taken: list[list[Box]] = [[] for _ in FIGURE_SIZES]
    positions: list[str | None] = []
    for i, (point, text) in enumerate(zip(points, texts, strict=True)):
        other_marks = [[mark for j, mark in enumerate(marks_at_size) if j != i] for marks_at_size in marks]
        position = next(
            (position for position in PLACES if text and _free(point, text, position, taken, other_marks)), None
        )
        if position is not None:
            for boxes, size in zip(taken, FIGURE_SIZES, strict=True):
                boxes.append(_label(point, text, position, size))
        positions.append(position)
    return positions


def _free(
    point: tuple[float, float], text: str, position: str, taken: list[list[Box]], other_marks: list[list[Box]]
) -> bool:
    for size, labels, marks in zip(FIGURE_SIZES, taken, other_marks, strict=True):
        box = _label(point, text, position, size)
        if box.left < -_EDGE or box.right > size[0] + _EDGE or box.bottom < 0 or box.top > size[1] + _EDGE:
            return False
        if any(box.meets(other) for other in (*labels, *marks)):
            return False
    return True


def _label(point: tuple[float, float], text: str, position: str, size: tuple[int, int]) -> Box:
    (right, up), (x, y) = PLACES[position], (point[0] * size[0], point[1] * size[1])
    width, gap = _LETTER * len(text), _GAP if right else 0
    left = x + right * gap - width * (1 - right) / 2
    bottom = y + up * (_GAP if not right else _MARK / 2) - _LINE * (1 - up) / 2
    return Box(left, bottom, left + width, bottom + _LINE)


def _mark(point: tuple[float, float], size: tuple[int, int]) -> Box:
    x, y = point[0] * size[0], point[1] * size[1]
    return Box(x - _MARK, y - _MARK, x + _MARK, y + _MARK)
