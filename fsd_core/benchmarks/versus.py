"""A metric of one run against that of another, on the prompts that both have done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fsd_core.benchmarks.ratios import Pairs, difference_interval, quotient_interval
from fsd_core.metrics import Generated, Metric


class Versus(NamedTuple):
    """A ratio where the metric says so, else a difference, as the metric is stored; with its interval, if any."""

    value: float
    low: float | None = None
    high: float | None = None


def versus(metric: Metric, ours: Mapping[int, Generated], theirs: Mapping[int, Generated]) -> Versus | None:
    """``None`` for a metric that is no ratio, and where the prompts that neither run failed at leave nothing to divide.

    Both by position of the prompt in one task.
    """
    shared = [
        key for key in sorted(ours.keys() & theirs.keys()) if "failed" not in (ours[key].outcome, theirs[key].outcome)
    ]
    if metric.ratio is None or not shared:
        return None
    a, b = ([metric.ratio(side[key]) for key in shared] for side in (ours, theirs))
    value, other = _value(a), _value(b)
    if value is None or other is None:
        return None
    if not metric.as_ratio:
        return Versus(value - other, *(difference_interval(a, b) or ()))
    return Versus(value / other, *(quotient_interval(a, b) or ())) if other else None


def _value(pairs: Pairs) -> float | None:
    below = sum(denominator for _, denominator in pairs)
    return sum(numerator for numerator, _ in pairs) / below if below else None
