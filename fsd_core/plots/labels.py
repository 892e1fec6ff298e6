"""Deterministic placement of point labels, so that none covers another label or a mark.

A figure is as wide as its page allows, so a position is used only if it is free at every size from a phone to a wide
screen. A label without a free position is left out; hovering shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

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
