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

from collections.abc import Mapping, Sequence
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
    "ticklabeloverflow": "allow",  # to hide those that overflow, the browser measures every one
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


FIGURE_SIZES = tuple(product((250, 340, 490, 1000), (220, 300)))
"""widths and heights of the plot in pixels, the range in which a figure may be drawn"""
WIDE = tuple(size for size in FIGURE_SIZES if size[0] >= 490)
"""those of a window that is wide enough for more labels (comparison.css)"""
LABEL_FONT = 11
MOST_LABELLED = 60
"""points; among more of them none would find a label that is beside it"""
_LETTER, _LINE, _MARK, _STEP = 6.0, 14, 7, 10
"""pixels: letter width and line height of that font, radius of a mark, distance of the places that are tried on a
leader"""
_EDGE = 12
"""pixels that a label may extend beyond the plot, into the margin"""
_NEAR = 14
_SIDES = (
    (0.7, 0.7), (-0.7, -0.7), (-0.7, 0.7), (0.7, -0.7), (0, 1), (0, -1), (1, 0), (-1, 0),
    (1, 0.4), (1, -0.4), (-1, 0.4), (-1, -0.4),
)  # fmt: skip


class Place(NamedTuple):
    """Where a label is: pixels from its point to its nearer edge (right) and to its middle (up)."""

    right: int
    up: int
    wide: bool = False
    """whether there is room only in a wide window"""

    @property
    def has_leader(self) -> bool:
        return max(abs(self.right), abs(self.up)) > _NEAR


PLACES = tuple(Place(round(r * x), round(r * y)) for r in (_NEAR, 30, 50, 76, 108, 150) for x, y in _SIDES)
"""the best first; from the farther ones a leader goes to the point"""


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


def places(points: Sequence[tuple[float, float]], texts: Sequence[str]) -> list[Place | None]:
    """Return where each point's text is: as near as is free at every size, or else at those of a wide window.

    It is ``None`` for an empty text and if no place is free; the first texts choose first. ``points``: 0 to 1 from left
    to right and from bottom to top of the plot.
    """
    marks = {size: [_mark(point, size) for point in points] for size in FIGURE_SIZES}
    taken: dict[tuple[int, int], list[Box]] = {size: [] for size in FIGURE_SIZES}
    found: list[Place | None] = [None] * len(points)
    for sizes in (FIGURE_SIZES, WIDE):
        for i, (point, text) in enumerate(zip(points, texts, strict=True)):
            if found[i] or not text or len(points) > MOST_LABELLED:
                continue
            others = {size: [*taken[size], *marks[size][:i], *marks[size][i + 1 :]] for size in sizes}
            place = next((one for one in PLACES if _is_free(point, text, one, others)), None)
            if place:
                found[i] = place._replace(wide=sizes is WIDE)
                for size in sizes:
                    taken[size] += _boxes(point, text, place, size)
    return found


def _is_free(
    point: tuple[float, float], text: str, place: Place, others: Mapping[tuple[int, int], Sequence[Box]]
) -> bool:
    for (width, height), boxes in others.items():
        own = _boxes(point, text, place, (width, height))
        is_inside = own[0].left > -_EDGE and own[0].right < width + _EDGE and 0 < own[0].bottom < height + _EDGE - _LINE
        if not is_inside or any(box.meets(other) for other in boxes for box in own):
            return False
    return True


def _boxes(point: tuple[float, float], text: str, place: Place, size: tuple[int, int]) -> list[Box]:
    """Return what a label covers, then what its leader does."""
    x, y, width = point[0] * size[0], point[1] * size[1], _LETTER * len(text)
    left = x + place.right - (width if place.right < 0 else 0 if place.right else width / 2)
    bottom = y + place.up - _LINE / 2
    boxes = [Box(left, bottom, left + width, bottom + _LINE)]
    if place.has_leader:
        steps = max(abs(place.right), abs(place.up)) // _STEP
        middles = [(x + place.right * i / steps, y + place.up * i / steps) for i in range(1, steps)]
        boxes += [Box(a - 1, b - 1, a + 1, b + 1) for a, b in middles]
    return boxes


def _mark(point: tuple[float, float], size: tuple[int, int]) -> Box:
    x, y = point[0] * size[0], point[1] * size[1]
    return Box(x - _MARK, y - _MARK, x + _MARK, y + _MARK)


def label(fig: go.Figure, x: float, y: float, text: str, place: Place) -> None:
    """Write a text beside a point of the data, with a leader if it is farther away."""
    fig.add_annotation(
        x=x, y=y, ax=place.right, ay=-place.up, text=f'<span style="--wide:1">{text}</span>' if place.wide else text,
        xanchor="left" if place.right > 0 else "right" if place.right else "center", yanchor="middle",
        font={"size": LABEL_FONT}, borderpad=0, arrowhead=0, arrowwidth=1, standoff=_MARK,
        arrowcolor=AXIS if place.has_leader else "rgba(0,0,0,0)",
    )  # fmt: skip
