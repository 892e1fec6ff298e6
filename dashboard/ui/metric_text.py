"""A run's figures as text: with their units, their digits, and the mark of one without the interval it should have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dashboard.ui.components import rough
from dashboard.ui.quantities import DASH, duration, percent, quantity
from dashboard.ui.templates import Html, escape
from fsd_core.metrics import METRICS

Ends = tuple[float | None, float | None, float | None]


def estimate(metrics: Mapping[str, Any], key: str) -> Ends:
    """Return a metric and the ends of its interval, each ``None`` if unknown."""
    return metrics.get(key), metrics.get(f"{key}_low"), metrics.get(f"{key}_high")


def figure(metrics: Mapping[str, Any], key: str, unit: str = "") -> Html:
    """Return a metric with the digits that its interval supports, seconds (``unit="s"``) as a duration."""
    value, low, high = estimate(metrics, key)
    if value is None or not math.isfinite(value):
        return escape(DASH)
    metric = METRICS[key]
    if metric.is_share:
        text = percent(value, low, high)
    else:
        text = duration(value) if unit == "s" else quantity(value, low, high, unit)
    return rough(text, metric.is_rough(value, low))
