"""Numbers as text, with the digits that their intervals support."""

from __future__ import annotations

import math
from typing import NamedTuple

MINUS = "\N{MINUS SIGN}"
DASH = "–"
MOST_DECIMALS = 6


def decimals(value: float, low: float | None, high: float | None) -> int:
    """Decimals such that the last one shown is the first that the interval leaves in doubt; at least none.

    Without an interval, or with one of no width, three significant digits are shown; of what is 0 to the last of
    ``MOST_DECIMALS``, none.
    """
    if max(abs(end) for end in (value, low or 0.0, high or 0.0)) < 10.0**-MOST_DECIMALS / 2:
        return 0  # rounding, of what is 0
    half = (high - low) / 2 if low is not None and high is not None else 0.0
    scale = half if half > 0 and math.isfinite(half) else abs(value) / 100
    if scale <= 0 or not math.isfinite(scale):
        return 0
    return min(max(0, -math.floor(math.log10(scale))), MOST_DECIMALS)


def number(value: float, digits: int, signed: bool = False) -> str:
    """``value`` with a true minus sign, and a plus sign where ``signed``; a rounded zero has no sign."""
    text = f"{abs(value):,.{digits}f}"
    if not text.strip("0.,"):
        return text
    return (MINUS if value < 0 else "+" if signed else "") + text


class Written(NamedTuple):
    """A value and the ends of its 95 % interval as text, with the same digits; ends are empty where none is known."""

    value: str
    low: str = ""
    high: str = ""

    def with_ends(self, form: str) -> str:
        """The value, and behind it the interval in ``form``, such as `` [{}, {}]``, if there is one."""
        return self.value + (form.format(self.low, self.high) if self.low else "")


def written(
    value: float,
    low: float | None = None,
    high: float | None = None,
    *,
    points: bool = False,
    digits: int | None = None,
) -> Written:
    """A value with the digits that its interval supports; without an interval with ``digits``, or three significant
    ones. ``points``: it is in per cent, of which all is written ``100`` and none ``0``, whatever the digits."""
    ends = [] if low is None or high is None else [low, high]
    shown = digits if digits is not None and not ends else decimals(value, low, high)
    told = [number(end, shown) for end in ends]
    return Written(_points(value, shown), *map(_whole, told)) if points else Written(number(value, shown), *told)


def percent(share: float | None, low: float | None = None, high: float | None = None, digits: int = 1) -> str:
    """A share from 0 to 1 in per cent, such as ``91.3 %`` or ``100 %``; a dash for no value. ``digits``: decimals where
    no interval decides their number."""
    if share is None or not math.isfinite(share):
        return DASH
    ends = (None, None) if low is None or high is None else (100 * low, 100 * high)
    return f"{written(100 * share, *ends, points=True, digits=digits).value} %"


def _points(value: float, digits: int) -> str:
    """What is not all never reads ``100``, what is not none never ``0``: it gets the digits that say so."""
    while digits < MOST_DECIMALS and _whole(number(value, digits)) in ("0", "100") and value not in (0.0, 100.0):
        digits += 1
    return _whole(number(value, digits))


def _whole(text: str) -> str:
    """``100`` of ``100.0``, ``0`` of ``0.00``; any other text as it is."""
    return f"{float(text):.0f}" if text.replace(".", "").strip("0") in ("", "1") and float(text) in (0, 100) else text


def p_value(p: float) -> str:
    """A p-value as it is usually told."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.995 else "p = 1"


def count(n: int, noun: str) -> str:
    """``1 run``, ``1,200 runs``."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def upper_first(text: str) -> str:
    """A text as a sentence begins."""
    return text[:1].upper() + text[1:]
