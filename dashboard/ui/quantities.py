"""Quantities as a person reads them: with the digits that their intervals support, and with their units."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from fsd_core.formatting import DASH as DASH
from fsd_core.formatting import percent as percent
from fsd_core.formatting import written


def quantity(value: float | None, low: float | None = None, high: float | None = None, unit: str = "") -> str:
    """``value`` rounded where its interval leaves it in doubt, such as ``1,204 tok/s``; a dash for no value."""
    if value is None or not math.isfinite(value):
        return DASH
    return written(value, low, high).value + (f" {unit}" if unit else "")


def interval(low: float | None, high: float | None, scale: float = 1.0) -> str:
    """The ends of a 95 % interval, such as ``88 to 94``, each times ``scale``, which is 100 of a share; empty where
    there is none."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    ends = written(scale * (low + high) / 2, scale * low, scale * high, points=scale == 100.0)
    return f"{ends.low} to {ends.high}"


def duration(seconds: float | None) -> str:
    """Seconds as ``84 ms``, ``3.1 s``, ``4 min 05 s`` or ``2 h 10 min``."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def moment(when: datetime | None) -> str:
    """A moment as ``2026-11-21 04:16 UTC``; a dash for none."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if when else DASH


def ago(when: datetime, now: datetime | None = None) -> str:
    """How long since a moment: ``just now``, ``5 min ago``, ``3 h ago``, ``2 days ago``, or its date after a month."""
    seconds = ((now or datetime.now(UTC)) - when).total_seconds()
    if seconds < 45:
        return "just now"
    if seconds < 3600:
        return f"{max(1, round(seconds / 60))} min ago"
    if seconds < 86_400:
        return f"{round(seconds / 3600)} h ago"
    days = round(seconds / 86_400)
    return f"{days} day{'' if days == 1 else 's'} ago" if days <= 30 else f"{when.astimezone(UTC):%Y-%m-%d}"
