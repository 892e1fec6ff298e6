"""Numbers as text, with the digits that their intervals support."""

from __future__ import annotations

import math

MINUS = "\N{MINUS SIGN}"


def decimals(value: float, low: float | None, high: float | None) -> int:
    """Decimals such that the last one shown is the first that the interval leaves in doubt; at least none.

    Without an interval, or with one of no width, three significant digits are shown.
    """
    half = (high - low) / 2 if low is not None and high is not None else 0.0
    scale = half if half > 0 and math.isfinite(half) else abs(value) / 100
    if scale <= 0 or not math.isfinite(scale):
        return 0
    return min(max(0, -math.floor(math.log10(scale))), 6)


def number(value: float, digits: int, signed: bool = False) -> str:
    """``value`` with a true minus sign, and a plus sign where ``signed``; a rounded zero has no sign."""
    text = f"{abs(value):,.{digits}f}"
    if not text.strip("0.,"):
        return text
    return (MINUS if value < 0 else "+" if signed else "") + text


def p_value(p: float) -> str:
    """A p-value as it is usually told."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.995 else "p = 1"


def count(n: int, noun: str) -> str:
    """``1 run``, ``1,200 runs``."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
