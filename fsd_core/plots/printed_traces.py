"""Traces of a figure on paper, drawn by Matplotlib, and their entries in the legend."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import unescape
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from fsd_core.errors import NotApplicable
from fsd_core.plots.print_marks import MPL_DASHES, marker_style, print_colour

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
