"""A metric of one run against that of another, on the prompts that both have done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from fsd_core.metrics import METRICS, Generated, Metric
from fsd_core.statistics.paired import paired_difference
from fsd_core.statistics.ratios import Pairs, difference_interval, quotient_interval

OF_ANSWERS = ("tokens_per_second", "mean_tokens", "target_passes", "runaway_rate")


class Placed(Generated, Protocol):
    """One that knows which prompt it is of."""

    @property
    def position(self) -> int: ...


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
    if metric.counted:
        ours_had, theirs_had = (dict(zip(shared, (one > 0 for one, _ in side), strict=True)) for side in (a, b))
        return Versus(value - other, *paired_difference(ours_had, theirs_had).interval)
    if not metric.as_ratio:
        return Versus(value - other, *(difference_interval(a, b) or ()))
    return Versus(value / other, *(quotient_interval(a, b) or ())) if other else None


def versus_target(ours: Sequence[Placed], targets: Sequence[Placed]) -> dict[str, float | None]:
    """What a setting does to answers, relative to those of the target alone: figures of a run, ready for JSON.

    ``mean_tokens_versus_target`` and so on, each with ``_low`` and ``_high``: ratios, of ``runaway_rate`` a difference.
    """
    sides = [{generated.position: generated for generated in side} for side in (ours, targets)]
    figures: dict[str, float | None] = {}
    for key in OF_ANSWERS:
        found = versus(METRICS[key], sides[0], sides[1]) or (None, None, None)
        figures |= {f"{key}_versus_target{end}": value for end, value in zip(("", "_low", "_high"), found, strict=True)}
    return figures


def _value(pairs: Pairs) -> float | None:
    below = sum(denominator for _, denominator in pairs)
    return sum(numerator for numerator, _ in pairs) / below if below else None
