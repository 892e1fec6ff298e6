"""Numbers as text, with the digits that their intervals support, and names for addresses and files."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

MINUS = "\N{MINUS SIGN}"
DASH = "–"
ROUGH_MARK = "≈ "
"""before a figure without the interval that others of its kind have, so that it does not look exact beside them"""
NO_INTERVAL = "No 95 % interval: too few prompts, or prompts that say too little"
"""explains the mark"""
MOST_DECIMALS = 6


def slug(text: str, longest: int) -> str:
    """Return a text as small letters, digits and hyphens between them, at most ``longest``; empty if it has none."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")[:longest].strip("-")


def decimals(value: float, low: float | None, high: float | None) -> int:
    """Return how many decimals to show: the last is the first digit that the interval leaves in doubt. At least 0.

    Without an interval, or with one of zero width, three significant digits are shown. A value that rounds to 0 at
    ``MOST_DECIMALS`` decimals gets none.
    """
    if max(abs(end) for end in (value, low or 0.0, high or 0.0)) < 10.0**-MOST_DECIMALS / 2:
        return 0  # 0, up to rounding
    half = (high - low) / 2 if low is not None and high is not None else 0.0
    scale = half if half > 0 and math.isfinite(half) else abs(value) / 100
    if scale <= 0 or not math.isfinite(scale):
        return 0
    return min(max(0, -math.floor(math.log10(scale))), MOST_DECIMALS)


def number(value: float | None, digits: int, signed: bool = False, times: float = 1) -> str:
    """Return ``value``, ``times`` so much, with a true minus sign, and a plus sign if ``signed``. A rounded zero has no
    sign.

    What is no finite number, or unknown, is a dash.
    """
    if value is None or not math.isfinite(value := value * times):
        return DASH
    text = f"{abs(value):,.{digits}f}"
    if not text.strip("0.,"):
        return text
    return (MINUS if value < 0 else "+" if signed else "") + text


class Written(NamedTuple):
    """A value and the ends of its 95 % interval as text, with the same digits. Unknown ends are empty."""

    value: str
    low: str = ""
    high: str = ""
    mark: str = ""
    """``ROUGH_MARK`` where the interval is missing"""

    def with_ends(self, form: str) -> str:
        """Return the marked value, followed by the interval in ``form``, such as `` [{}, {}]``, if there is one."""
        return self.mark + self.value + (form.format(self.low, self.high) if self.low else "")


def written(
    value: float,
    low: float | None = None,
    high: float | None = None,
    *,
    points: bool = False,
    digits: int | None = None,
    rough: bool = False,
) -> Written:
    """Return a value with the digits that its interval supports.

    Without an interval, it gets ``digits`` decimals or three significant digits. ``points``: the value is in per cent;
    only all of it reads ``100`` and only none of it ``0``, whatever the digits. ``rough``: whether its kind has an
    interval, so that it is marked without one.
    """
    ends = [] if low is None or high is None else [low, high]
    precision = digits if digits is not None and not ends else decimals(value, low, high)
    texts = [number(end, precision) for end in ends]
    figure = (
        Written(_points(value, precision), *map(_whole, texts)) if points else Written(number(value, precision), *texts)
    )
    return figure._replace(mark=ROUGH_MARK) if rough and not ends else figure


def percent(share: float | None, low: float | None = None, high: float | None = None, digits: int = 1) -> str:
    """Return a share from 0 to 1 in per cent, such as ``91.3 %`` or ``100 %``; a dash for no value.

    ``digits`` is the number of decimals without an interval.
    """
    if share is None or not math.isfinite(share):
        return DASH
    ends = (None, None) if low is None or high is None else (100 * low, 100 * high)
    return f"{written(100 * share, *ends, points=True, digits=digits).value} %"


def _points(value: float, digits: int) -> str:
    """Return a percentage with enough digits that only all reads ``100`` and only none reads ``0``."""
    while digits < MOST_DECIMALS and _whole(number(value, digits)) in ("0", "100") and value not in (0.0, 100.0):
        digits += 1
    return _whole(number(value, digits))


def _whole(text: str) -> str:
    """Return ``100`` for ``100.0`` and ``0`` for ``0.00``; any other text unchanged."""
    return f"{float(text):.0f}" if text.replace(".", "").strip("0") in ("", "1") and float(text) in (0, 100) else text


def p_value(p: float) -> str:
    """Return a p-value as it is usually reported."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.995 else "p = 1"


def count(n: float, noun: str) -> str:
    """Return a number with its noun: ``1 run``, ``0.5 points``, ``1,200 runs``."""
    return f"{n:{',' if isinstance(n, int) else ',.10g'}} {noun}{'' if n == 1 else 's'}"


def upper_first(text: str) -> str:
    """Return a text with its first letter in upper case."""
    return text[:1].upper() + text[1:]
