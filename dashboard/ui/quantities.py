"""Quantities in a readable format: with units, and with the digits that their intervals support."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.formatting import DASH as DASH
from fsd_core.formatting import count, written
from fsd_core.formatting import percent as percent

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView


def quantity(value: float | None, low: float | None = None, high: float | None = None, unit: str = "") -> str:
    """Return ``value`` rounded to what its interval supports, such as ``1,204 tok/s``, or a dash for no value."""
    if value is None or not math.isfinite(value):
        return DASH
    return written(value, low, high).value + (f" {unit}" if unit else "")


def interval(low: float | None, high: float | None, scale: float = 1.0) -> str:
    """Return the ends of a 95 % interval, such as ``88 to 94``, or an empty string without one.

    Each end is multiplied by ``scale``, which is 100 for a share.
    """
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    ends = written(scale * (low + high) / 2, scale * low, scale * high, points=scale == 100.0)
    return f"{ends.low} to {ends.high}"


def durations(low: float | None, high: float | None) -> str:
    """Return the ends of a 95 % interval in seconds, such as ``108 to 116 ms``, or an empty string without one."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    (least, unit), most = duration(low).split(" ", 1), duration(high)
    same = most.split(" ", 1)[1] == unit in ("ms", "s")
    return f"{least} to {most}" if same else f"{least} {unit} to {most}"


def duration(seconds: float | None) -> str:
    """Return seconds as ``84 ms``, ``3.1 s``, ``4 min 05 s`` or ``2 h 10 min``."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, remainder = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {remainder:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def texts_done(experiment: ExperimentView) -> str:
    """Return how many texts of an experiment are written: ``1,600 of 1,600 texts (16 runs × 100 prompts)``."""
    if isinstance(experiment.config, CalibrationConfig):  # the total is unknown
        return f"{count(experiment.prompts_done, 'text')} written"
    text = f"{experiment.prompts_done:,} of {count(experiment.prompts_total, 'text')}"
    each = {run.prompts_total for run in experiment.runs}
    if len(experiment.runs) < 2 or len(each) > 1:
        return text
    return f"{text} ({count(len(experiment.runs), 'run')} × {count(each.pop(), 'prompt')})"


def moment(when: datetime | None) -> str:
    """Return a moment as ``2026-11-21 04:16 UTC``, or a dash for none."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if when else DASH


def ago(when: datetime, now: datetime | None = None) -> str:
    """Return the time since a moment: ``just now``, ``5 min ago``, ``3 h ago``, ``2 days ago``, or its date after a
    month."""
    seconds = ((now or datetime.now(UTC)) - when).total_seconds()
    if seconds < 45:
        return "just now"
    if seconds < 3600:
        return f"{max(1, round(seconds / 60))} min ago"
    if seconds < 86_400:
        return f"{round(seconds / 3600)} h ago"
    days = round(seconds / 86_400)
    return f"{days} day{'' if days == 1 else 's'} ago" if days <= 30 else f"{when.astimezone(UTC):%Y-%m-%d}"
