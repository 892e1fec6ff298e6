"""A figure as a file for paper: SVG, PNG or PDF, drawn by Matplotlib on white.

Fonts are in the file: PDF embeds them, SVG has the outlines of its letters. The legend is below the plot and has every
entry. Only the parts of Plotly are drawn that the figures of this package use.
"""

from __future__ import annotations

import io
import math
import re
import threading
from collections.abc import Sequence
from html import unescape
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import plotly.graph_objects as go

from fsd_core.errors import NotApplicable, UnknownChoice

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MPL_DASHES: dict[str, Any] = {
    "solid": "-",
    "dot": (0, (1, 1.8)),
    "dash": (0, (5, 2.5)),
    "dashdot": (0, (5, 2, 1, 2)),
    "longdash": (0, (9, 3)),
    "longdashdot": (0, (9, 2.5, 1, 2.5)),
}
"""line styles by Plotly's name"""
_BOWTIE = [(-1, -1), (-1, 1), (1, -1), (1, 1), (-1, -1)]
_HOURGLASS = [(-1, -1), (1, -1), (-1, 1), (1, 1), (-1, -1)]
_MARKERS: dict[str, Any] = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "triangle-down": "v", "triangle-left": "<",
    "triangle-right": ">", "cross": "P", "x": "X", "star": "*", "pentagon": "p", "hexagon": "h", "octagon": "8",
    "diamond-tall": "d", "diamond-wide": (4, 1, 0), "asterisk": (6, 2, 0), "arrow-right": 9, "star-square": (4, 1, 45),
    "bowtie": _BOWTIE, "hourglass": _HOURGLASS, "star-triangle-up": (3, 1, 0), "star-triangle-down": (3, 1, 180),
}  # fmt: skip
_RGBA = re.compile(r"rgba?\(([^)]+)\)")
_DARK_GREY = "#50545c"
_AREA, _FAINTEST_LINE = 0.25, 0.45
"""opacities: less than the first is the area of an interval; a line has at least the second"""


def print_colour(colour: str | None) -> Any:
    """Return a colour for white paper. Greys, which are mid-tones for two themes on a page, become dark."""
    if colour is None or _is_grey(colour):
        return _DARK_GREY
    if (match := _RGBA.fullmatch(colour)) is None:
        return colour
    red, green, blue, *alpha = (float(part) for part in match[1].split(","))
    opacity = alpha[0] if alpha else 1.0
    return red / 255, green / 255, blue / 255, opacity if opacity < _AREA else max(opacity, _FAINTEST_LINE)


def _is_grey(colour: str) -> bool:
    if not re.fullmatch("#[0-9a-fA-F]{6}", colour):
        return False
    channels = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return max(channels) - min(channels) < 24


def marker_style(symbol: str | None, colour: str | None) -> dict[str, Any]:
    """Return Matplotlib's options for a mark. An open one is white inside, one with a cross is half white.

    A symbol of another package's rule that is unknown here is a circle.
    """
    name = symbol or "circle"
    is_open, is_crossed = name.endswith("-open"), name.endswith("-cross")
    drawn = print_colour(colour)
    return {
        "marker": _MARKERS.get(name.removesuffix("-open").removesuffix("-cross"), "o"),
        "fillstyle": "left" if is_crossed else "full",
        "markerfacecolor": "white" if is_open else drawn,
        "markerfacecoloralt": "white",
        "markeredgecolor": drawn,
        "markeredgewidth": 0.9 if is_open or is_crossed else 0.4,
    }


POINTS_PER_PIXEL = 0.62  # from sizes on a page to those on paper
CHARACTERS = 104  # of 8 points, across the width


class PrintedPlot(NamedTuple):
    """One pair of axes."""

    axes: Axes
    x: Any
    """Plotly's axis, with the defaults of the template"""
    y: Any
    x_names: list[str]
    """names along an axis that has no numbers; their places are 0, 1, 2, …"""
    y_names: list[str]


def plain(text: str | None) -> str:
    """Return a text of Plotly without its tags."""
    lines = re.sub(r"<br ?/?>", "\n", text or "")
    return unescape(re.sub(r"</?(b|i|sub|sup|span)[^>]*>", "", lines))


def listed(values: Any) -> list[Any]:
    """Return what Plotly has along an axis as a list; nothing is an empty one."""
    return [] if values is None else list(values)


def numbers(values: Any, names: Sequence[str]) -> list[float]:
    """Return places along an axis: names by their place among ``names``, gaps as NaN."""
    return [
        names.index(value) if isinstance(value, str) else math.nan if value is None else float(value)
        for value in listed(values)
    ]


class Legend:
    """The entries of the legend, in the order of the traces."""

    def __init__(self) -> None:
        self._entries: dict[str, list[Artist]] = {}

    def add(self, trace: Any, handles: Sequence[Artist]) -> None:
        if trace.name and trace.showlegend is not False and handles:
            self._entries[plain(trace.name)] = list(handles)

    def add_to(self, drawing: Figure, height: float) -> None:
        """Write all entries below the plots, and make the figure higher by as much as they need."""
        if not self._entries:
            return
        labels = [fill(label, CHARACTERS - 10) for label in self._entries]
        longest = max(len(line) for label in labels for line in label.split("\n"))
        columns = max(1, min(len(labels), CHARACTERS // (longest + 9)))
        lines = sum(label.count("\n") + 1 for label in labels)
        drawing.set_figheight(height + 0.17 * math.ceil(lines / columns))
        drawing.legend(
            [*map(tuple, self._entries.values())],  # pyright: ignore[reportArgumentType]  # a line and its mark
            labels, loc="outside lower left", ncols=columns,
            frameon=False, fontsize=7.5, handlelength=2.6, borderaxespad=0.2,
        )  # fmt: skip


def draw_trace(plot: PrintedPlot, trace: Any, entries: Legend) -> None:
    """Draw a trace with its error bars. Raises ``InvalidSetting`` for a kind that no figure of this package has."""
    x, y = numbers(trace.x, plot.x_names), numbers(trace.y, plot.y_names)
    if trace.type == "bar":
        entries.add(trace, _bars(plot.axes, trace, x, y))
    elif trace.type == "scatter":
        entries.add(trace, _scatter(plot.axes, trace, x, y))
    else:
        raise NotApplicable(f"A figure with a {trace.type} cannot be saved for paper: save it as HTML.")
    errors = {
        f"{side}err": [listed(bars.arrayminus if bars.arrayminus is not None else bars.array), listed(bars.array)]
        for side in ("x", "y")
        if (bars := trace[f"error_{side}"]).array is not None
    }
    if errors:
        colour = print_colour(trace.error_x.color or trace.error_y.color)
        plot.axes.errorbar(x, _bar_middles(trace, y), **errors, fmt="none", ecolor=colour, elinewidth=0.8, capsize=1.8)  # pyright: ignore[reportArgumentType]


def _bar_middles(trace: Any, y: list[float]) -> list[float]:
    if trace.type != "bar" or trace.orientation != "h" or trace.offset is None:
        return y
    return [value + trace.offset + trace.width / 2 for value in y]


def _bars(axes: Axes, trace: Any, x: list[float], y: list[float]) -> Sequence[Artist]:
    colours = trace.marker.color
    colours = print_colour(colours) if isinstance(colours, str) else [print_colour(colour) for colour in colours]
    width = trace.width if trace.width is not None else 0.8
    if trace.orientation == "h":
        return axes.barh(_bar_middles(trace, y), x, height=width, color=colours, alpha=trace.opacity).patches[:1]
    return axes.bar(x, y, width=width, color=colours, linewidth=0, alpha=trace.opacity).patches[:1]


def _scatter(axes: Axes, trace: Any, x: list[float], y: list[float]) -> list[Artist]:
    mode, handles = trace.mode or "lines+markers", []
    if trace.fill == "toself":
        return [*axes.fill(x, y, color=print_colour(trace.fillcolor), linewidth=0)]
    if "lines" in mode:
        handles += axes.plot(
            x, y, color=print_colour(trace.line.color), linewidth=POINTS_PER_PIXEL * (trace.line.width or 2),
            linestyle=MPL_DASHES[trace.line.dash or "solid"],
            drawstyle="steps-pre" if trace.line.shape == "vh" else "default",
        )  # fmt: skip
    if "markers" in mode:
        size = POINTS_PER_PIXEL * (trace.marker.size or 6)
        style = marker_style(trace.marker.symbol, trace.marker.color or trace.line.color)
        handles += axes.plot(x, y, linestyle="none", markersize=size, clip_on=False, **style)
    if "text" in mode:
        _texts(axes, trace, x, y)
    return handles


def _texts(axes: Axes, trace: Any, x: list[float], y: list[float]) -> None:
    positions = trace.textposition
    positions = [positions] * len(x) if positions is None or isinstance(positions, str) else positions
    for point, text, position in zip(zip(x, y, strict=True), listed(trace.text), positions, strict=True):
        if text:
            up, across = (position or "middle center").split()
            offset = {"left": -4, "center": 0, "right": 4}[across], {"top": 2, "middle": 0, "bottom": -2}[up]
            axes.annotate(
                plain(text), point, offset, textcoords="offset points", fontsize=7,
                ha={"left": "right", "center": "center", "right": "left"}[across],
                va={"top": "bottom", "middle": "center", "bottom": "top"}[up],
            ).set_in_layout(False)  # fmt: skip


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


def on_white(figure: go.Figure) -> go.Figure:
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
        offset, arrow = (4 if is_beside_line else 0, 0), None
        if note.showarrow is not False:
            offset = note.ax * POINTS_PER_PIXEL, -note.ay * POINTS_PER_PIXEL
            arrow = {"arrowstyle": "-", "linewidth": 0.5, "color": print_colour(note.arrowcolor), "shrinkB": 3}
        axes.annotate(
            fill(plain(note.text), CHARACTERS), (note.x, note.y), offset, fontsize=8, arrowprops=arrow,
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
