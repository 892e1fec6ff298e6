"""Where the labels of points stand, so that none covers another label or a mark: a small deterministic placement.

A figure is drawn as wide as its page allows, so a place is taken only where it is free in every size from a phone's to
a wide screen's. A label that finds none is left out; hovering tells it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

FIGURE_SIZES = tuple(product((240, 360, 560, 1100), (150, 330)))
"""widths and heights of the plot in pixels, between which a figure may be drawn"""
LABEL_FONT = 11
_LETTER, _LINE, _GAP, _MARK = 6.3, 15, 7, 6
"""pixels: width of a letter and height of a line of that font, from a mark's middle to its label, radius of a mark"""
_EDGE = 14
"""pixels that a label may reach beyond the plot, into the margin"""
PLACES = {
    "top right": (1, 1), "bottom left": (-1, -1), "top left": (-1, 1), "bottom right": (1, -1), "top center": (0, 1),
    "bottom center": (0, -1), "middle right": (1, 0), "middle left": (-1, 0),
}  # fmt: skip
"""by plotly's names, the best first: on which side of its mark a label stands, rightwards and upwards"""


class Box(NamedTuple):
    """A rectangle in pixels, upwards from the plot's lower left corner."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )


def places(points: Sequence[tuple[float, float]], texts: Sequence[str]) -> list[str | None]:
    """The place of each point's text, one of ``PLACES``; ``None`` for an empty text and for one that finds none.

    ``points``: 0 to 1 from left to right and from bottom to top of the plot.
    """
    marks = [[_mark(point, size) for point in points] for size in FIGURE_SIZES]
    taken: list[list[Box]] = [[] for _ in FIGURE_SIZES]
    found: list[str | None] = []
    for i, (point, text) in enumerate(zip(points, texts, strict=True)):
        others = [[mark for j, mark in enumerate(of_size) if j != i] for of_size in marks]
        place = next((place for place in PLACES if text and _free(point, text, place, taken, others)), None)
        if place is not None:
            for boxes, size in zip(taken, FIGURE_SIZES, strict=True):
                boxes.append(_label(point, text, place, size))
        found.append(place)
    return found


def _free(point: tuple[float, float], text: str, place: str, taken: list[list[Box]], others: list[list[Box]]) -> bool:
    for size, labels, marks in zip(FIGURE_SIZES, taken, others, strict=True):
        box = _label(point, text, place, size)
        if box.left < -_EDGE or box.right > size[0] + _EDGE or box.bottom < 0 or box.top > size[1] + _EDGE:
            return False
        if any(box.meets(other) for other in (*labels, *marks)):
            return False
    return True


def _label(point: tuple[float, float], text: str, place: str, size: tuple[int, int]) -> Box:
    (right, up), (x, y) = PLACES[place], (point[0] * size[0], point[1] * size[1])
    width, gap = _LETTER * len(text), _GAP if right else 0
    left = x + right * gap - width * (1 - right) / 2
    bottom = y + up * (_GAP if not right else _MARK / 2) - _LINE * (1 - up) / 2
    return Box(left, bottom, left + width, bottom + _LINE)


def _mark(point: tuple[float, float], size: tuple[int, int]) -> Box:
    x, y = point[0] * size[0], point[1] * size[1]
    return Box(x - _MARK, y - _MARK, x + _MARK, y + _MARK)
