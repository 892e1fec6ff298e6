"""Plotly's colours, dashes and marks, as Matplotlib draws them on white paper."""

from __future__ import annotations

import re
from typing import Any

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
