"""A figure as a file for paper: SVG, PNG or PDF, drawn by Matplotlib on white, whatever the theme of the page.

Fonts are in the file: PDF embeds them, SVG has the outlines of its letters. The legend is below the plot and has every
entry. Only the parts of Plotly are drawn that the figures of this package use.
"""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, cast

import plotly.graph_objects as go

from fsd_core.errors import UnknownChoice
from fsd_core.plots.print_marks import MPL_DASHES, print_colour
from fsd_core.plots.printed_traces import CHARACTERS, POINTS_PER_PIXEL, Legend, PrintedPlot, draw_trace, listed, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PRINT_FORMATS = {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf"}
"""media types by the end of a file's name"""
INK, PAPER = "#1b1d21", "#ffffff"
_WIDTH = 6.5  # inches: the text of a page
_DPI = 300
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with Matplotlib
    "font.size": 8,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#50545c",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "grid.color": "#d9dbe0",
    "grid.linewidth": 0.5,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "pdf.fonttype": 42,  # TrueType, which journals accept
    "svg.fonttype": "path",
    "svg.hashsalt": "fsd-lab",  # the same figure is the same bytes
}
_SPINES = {"x": "bottom", "y": "left"}
_one_at_a_time = threading.Lock()  # Matplotlib's style is one for the process


def printed(figure: go.Figure, form: str) -> bytes:
    """Return a figure as a file. ``form`` is one of ``PRINT_FORMATS``. Raises ``InvalidSetting`` for another."""
    if form not in PRINT_FORMATS:
        raise UnknownChoice(f"A figure cannot be saved as {form[:20]!r}: expected {', '.join(PRINT_FORMATS)}.")
    import matplotlib as mpl

    out = io.BytesIO()
    dates = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None, "Creator": None}}
    title = {} if form == "png" else {"Title": plain_title(figure)}
    with _one_at_a_time, mpl.rc_context(_STYLE):
        _drawn(figure).savefig(out, format=form, dpi=_DPI, metadata=dates.get(form, {}) | title)
    return out.getvalue()


def plain_title(figure: go.Figure) -> str:
    """Return the title of a figure as plain text."""
    layout: Any = figure.layout
    return plain(layout.title.text)


def light(figure: go.Figure) -> go.Figure:
    """Return a copy of a figure for a page of its own: dark text on white, and no fixed height."""
    copy = go.Figure(figure)
    copy.update_layout(font_color=INK, paper_bgcolor=PAPER, plot_bgcolor=PAPER, height=None, autosize=True, meta=None)
    copy.update_annotations(font_color=INK)
    return copy


def _drawn(figure: go.Figure) -> Figure:
    from matplotlib.figure import Figure

    full: Any = go.Figure(figure)  # Plotly's own types do not say what a layout has
    keys = list(dict.fromkeys((trace.xaxis or "x", trace.yaxis or "y") for trace in full.data)) or [("x", "y")]
    rows, columns = _grid(full, keys)
    entries = Legend()
    height = (full.layout.height or 380) / 380 * 3.3
    drawing = Figure(figsize=(_WIDTH, height), layout="constrained")
    grid = drawing.subplots(len(rows), len(columns), squeeze=False)
    plots: dict[tuple[str, str], PrintedPlot] = {}
    for key in keys:
        x, y = _axis(full, key[0]), _axis(full, key[1])
        place = grid[rows.index(_top(y)), columns.index(_left(x))]
        plots[key] = PrintedPlot(place, x, y, _names(full, key, "x"), _names(full, key, "y"))
    for cell in grid.flat:
        cell.set_visible(any(cell is plot.axes for plot in plots.values()))
    for trace in full.data:
        draw_trace(plots[trace.xaxis or "x", trace.yaxis or "y"], trace, entries)
    for plot in plots.values():
        _finish(plot)
    _shapes(full, plots)
    _annotations(full, plots)
    title = "\n".join(filter(None, (plain_title(full), plain(full.layout.title.subtitle.text))))
    if title:
        drawing.suptitle(title, x=0.01, ha="left", fontsize=9.5, fontweight="bold")
    entries.add_to(drawing, height)
    return drawing


# --- places -------------------------------------------------------------------------------------------------------


def _axis(figure: go.Figure, reference: str) -> Any:
    """Return the axis that a trace refers to as ``x``, ``x2``, ``y``, …"""
    return figure.layout[f"{reference[0]}axis{reference[1:]}"]


def _left(axis: Any) -> float:
    return round(axis.domain[0], 4) if axis.domain else 0.0


def _top(axis: Any) -> float:
    return -round(axis.domain[1], 4) if axis.domain else 0.0


def _grid(figure: go.Figure, keys: Sequence[tuple[str, str]]) -> tuple[list[float], list[float]]:
    """Return the tops of the rows and the left ends of the columns."""
    rows = sorted({_top(_axis(figure, y)) for _, y in keys})
    return rows, sorted({_left(_axis(figure, x)) for x, _ in keys})


def _names(figure: go.Figure, key: tuple[str, str], side: str) -> list[str]:
    values = [
        value
        for trace in cast(Sequence[Any], figure.data)
        if (trace.xaxis or "x", trace.yaxis or "y") == key
        for value in listed(trace[side])
        if isinstance(value, str)
    ]
    return list(dict.fromkeys(values))


# --- axes, shapes, annotations ------------------------------------------------------------------------------------


def _finish(plot: PrintedPlot) -> None:
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    sides: tuple[tuple[Literal["x", "y"], Any, list[str]], ...]
    sides = ("x", plot.x, plot.x_names), ("y", plot.y, plot.y_names)
    for side, axis, names in sides:
        drawn = getattr(plot.axes, f"{side}axis")
        set_limits, limits = getattr(plot.axes, f"set_{side}lim"), getattr(plot.axes, f"get_{side}lim")
        if axis.visible is False:
            drawn.set_visible(False)
            plot.axes.spines[_SPINES[side]].set_visible(False)
        if axis.range is not None:
            set_limits(*axis.range)
        elif names:
            set_limits(*((len(names) - 0.5, -0.5) if axis.autorange == "reversed" else (-0.5, len(names) - 0.5)))
        elif axis.rangemode == "tozero":
            low, high = limits()
            set_limits(min(low, 0) if low < 0 else 0, high)
        if axis.showticklabels is False:
            drawn.set_ticks([])
            plot.axes.spines[_SPINES[side]].set_visible(False)
        elif names:
            drawn.set_ticks(range(len(names)), [plain(name) for name in names])
        elif axis.dtick is not None:
            low, high = sorted(limits())
            step = axis.dtick * max(1, math.ceil((high - low) / axis.dtick / 15))
            drawn.set_major_locator(MultipleLocator(step))
        else:
            drawn.set_major_locator(MaxNLocator(axis.nticks or 8, steps=[1, 2, 2.5, 5, 10]))
        plot.axes.grid(axis.showgrid is not False and axis.visible is not False, axis=side)
        drawn.set_label_text(plain(axis.title.text))


def _shapes(figure: Any, plots: dict[tuple[str, str], PrintedPlot]) -> None:
    for shape in figure.layout.shapes:
        axes = _plot_of(shape, plots).axes
        axes.plot(
            [shape.x0, shape.x1], [shape.y0, shape.y1], transform=_transform(axes, shape), scalex=False, scaley=False,
            color=print_colour(shape.line.color), linewidth=POINTS_PER_PIXEL * (shape.line.width or 2),
            linestyle=MPL_DASHES[shape.line.dash or "solid"],
        )  # fmt: skip


def _annotations(figure: Any, plots: dict[tuple[str, str], PrintedPlot]) -> None:
    for note in figure.layout.annotations:
        if len(plots) > 1 and (note.xref, note.yref) == ("paper", "paper"):
            _nearest(note, plots).axes.set_title(plain(note.text))
            continue
        axes = _plot_of(note, plots).axes
        anchors = {"middle": "center", None: "center", "auto": "center"}
        is_beside_line = note.xanchor == "left" and note.xref != "paper"
        axes.annotate(
            fill(plain(note.text), CHARACTERS), (note.x, note.y), (4 if is_beside_line else 0, 0), fontsize=8,
            xycoords=_transform(axes, note), textcoords="offset points",
            ha=anchors.get(note.xanchor, note.xanchor), va=anchors.get(note.yanchor, note.yanchor),
        ).set_in_layout(False)  # fmt: skip


def _plot_of(item: Any, plots: dict[tuple[str, str], PrintedPlot]) -> PrintedPlot:
    """Return the plot to which a shape or a note belongs: that of its axes, or the first."""
    x, y = ((reference or side).split(" ")[0] for reference, side in ((item.xref, "x"), (item.yref, "y")))
    for (own_x, own_y), plot in plots.items():
        if x in (own_x, "paper") and y in (own_y, "paper"):
            return plot
    return next(iter(plots.values()))


def _nearest(note: Any, plots: dict[tuple[str, str], PrintedPlot]) -> PrintedPlot:
    """Return the plot above which a note stands."""

    def distance(plot: PrintedPlot) -> float:
        (left, right), top = plot.x.domain or (0, 1), (plot.y.domain or (0, 1))[1]
        return abs((left + right) / 2 - note.x) + abs(top - note.y)

    return min(plots.values(), key=distance)


def _transform(axes: Axes, item: Any) -> Any:
    """Return the transform of coordinates that are in data, or a share of the plot."""
    from matplotlib.transforms import blended_transform_factory

    x, y = (axes.transAxes if reference and _is_share(reference) else axes.transData
            for reference in (item.xref, item.yref))  # fmt: skip
    return blended_transform_factory(x, y)


def _is_share(reference: str) -> bool:
    return reference == "paper" or reference.endswith(" domain")
