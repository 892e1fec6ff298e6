"""A picture of accuracy against speed for a card or a page, as SVG in the colours of the theme. It needs no script.

To the right is faster than exact speculative decoding, below is what is lost against the target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from dashboard.ui.templates import Html, render

_LEFT, _TOP, _WIDTH, _HEIGHT = 44.0, 44.0, 416.0, 150.0
"""of the axes within a picture of 480 × 238"""
_STEPS = (0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10, 20, 25, 50, 100)
_MOST_TICKS = 5
_LABEL_WIDTH = 190.0


class TradeOffPoint(NamedTuple):
    """Measured figures of one setting."""

    label: str
    speed: float
    """× as fast as exact speculative decoding"""
    points: float
    """of accuracy against the target"""
    slowest: float | None = None
    fastest: float | None = None
    """ends of the interval of the speed"""
    least: float | None = None
    """points that are kept for sure"""
    is_chosen: bool = False
    is_exact: bool = False


class _Drawn(NamedTuple):
    x: float
    y: float
    x1: float
    x2: float
    y2: float
    style: str
    text: str
    title: str
    anchor: str


def trade_off(points: Sequence[TradeOffPoint], margin: float | None, alt: str) -> Html:
    """Return the picture of some settings, or nothing if they have no figures. ``margin``: points that may be lost."""
    points = [point for point in points if math.isfinite(point.speed) and math.isfinite(point.points)]
    if not points:
        return Html()
    speeds = [end for p in points for end in (p.speed, p.slowest, p.fastest) if end is not None and math.isfinite(end)]
    lost = [end for p in points for end in (p.points, p.least) if end is not None and math.isfinite(end)]
    x_ticks = _ticks(min(1.0, *speeds), max(1.25, *speeds))
    y_ticks = _ticks(min(-1.0, -(margin or 0), *lost), max(0.0, *lost))

    def x(speed: float) -> float:
        return _LEFT + _WIDTH * (speed - x_ticks[0]) / (x_ticks[-1] - x_ticks[0])

    def y(kept: float) -> float:
        return _TOP + _HEIGHT * (y_ticks[-1] - kept) / (y_ticks[-1] - y_ticks[0])

    drawn = []
    for p in sorted(points, key=lambda point: point.is_chosen):
        at, slowest, fastest = x(p.speed), x(_or(p.slowest, p.speed)), x(_or(p.fastest, p.speed))
        style = "chosen" if p.is_chosen else "exact" if p.is_exact else "tried"
        title = f"{p.label}: {p.speed:.2f} × as fast as SD, {_signed(p.points)} points"
        anchor = "start" if at < _LEFT + _WIDTH - _LABEL_WIDTH else "end"
        shown = p.label if p.is_chosen or p.is_exact else ""
        drawn.append(
            _Drawn(at, y(p.points), slowest, fastest, y(_or(p.least, p.points)), style, shown, title, anchor)
        )  # fmt: skip
    return render(
        "ui/trade_off.html",
        "picture",
        alt,
        [(x(tick), f"{tick:g} ×") for tick in x_ticks],
        [(y(tick), _signed(tick)) for tick in y_ticks],
        y(0.0),
        None if not margin else (y(-margin), _beside(y(-margin)), f"{_points(margin)} may be lost"),
        drawn,
    )


def _points(points: float) -> str:
    return f"{points:g} {'point' if points == 1 else 'points'}"


def _beside(y: float) -> float:
    """Return where the text of a line stands: below it, where there is space for one."""
    return y + 13 if y + 20 < _TOP + _HEIGHT else y - 5


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None or not math.isfinite(value) else value


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−") if round(value, 2) else "0"


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers that span both ends, at most six."""
    step = next((s for s in _STEPS if (high - low) / s <= _MOST_TICKS), (high - low) / _MOST_TICKS)
    first, last = math.floor(round(low / step, 6)), math.ceil(round(high / step, 6))
    return [round(step * i, 6) for i in range(first, last + 1)]
