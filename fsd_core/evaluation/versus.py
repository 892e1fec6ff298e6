"""A metric of one run compared with another's, on the prompts that both have done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from fsd_core.evaluation.prompt_clusters import by_cluster, clusters_of
from fsd_core.metrics import METRICS, Generated, Metric
from fsd_core.statistics.intervals import Interval
from fsd_core.statistics.paired import paired_difference
from fsd_core.statistics.ratios import Pairs, difference_interval, quotient_interval

OF_ANSWERS = ("seconds_per_answer", "tokens_per_second", "mean_tokens", "target_passes", "runaway_rate")


class Placed(Generated, Protocol):
    """A generation that knows the position of its prompt."""

    @property
    def position(self) -> int: ...


class Versus(NamedTuple):
    """A ratio or a speed-up if the metric says so, else a difference in the stored unit of the metric."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval, if the prompts support one."""
        return None if self.low is None or self.high is None else Interval(self.low, self.high)


def versus(metric: Metric, run: Mapping[int, Generated], baseline: Mapping[int, Generated]) -> Versus | None:
    """Return a metric of one run relative to another, both by position of the prompt in one task.

    Return ``None`` for a metric that is no ratio, and if the prompts that neither run failed give nothing to divide by.
    """
    shared = answered(run, baseline, timed=metric.timed)
    if metric.ratio is None or not shared:
        return None
    a, b = ([metric.ratio(side[key]) for key in shared] for side in (run, baseline))
    if metric.as_speedup:
        a, b = b, a
    value, other = _value(a), _value(b)
    if value is None or other is None:
        return None
    if metric.counted:
        run_hits, baseline_hits = (
            dict(zip(shared, (numerator > 0 for numerator, _ in side), strict=True)) for side in (a, b)
        )
        clusters = clusters_of({key: run[key] for key in shared})
        return Versus(value - other, *paired_difference(run_hits, baseline_hits, clusters=clusters).interval)
    # Of one task, so both sides have the same clusters.
    a, b = (by_cluster(pairs, [run[key] for key in shared]) for pairs in (a, b))
    if not metric.as_ratio:
        return Versus(value - other, *(difference_interval(a, b) or ()))
    return Versus(value / other, *(quotient_interval(a, b) or ())) if other else None


def answered(run: Mapping[int, Generated], baseline: Mapping[int, Generated], *, timed: bool = False) -> list[int]:
    """Return the positions of the prompts that neither failed; ``timed``: of those whose times count on both sides."""
    return [
        key
        for key in sorted(run.keys() & baseline.keys())
        if "failed" not in (run[key].outcome, baseline[key].outcome)
        and (not timed or (run[key].timed and baseline[key].timed))
    ]


def versus_target(run: Sequence[Placed], target: Sequence[Placed]) -> dict[str, float | None]:
    """Return metrics of a setting's answers relative to those of the target alone, ready for JSON.

    Keys are ``mean_tokens_versus_target`` and so on, each with ``_low`` and ``_high``. Values are ratios, except a
    difference for ``runaway_rate``. ``speedup_versus_target`` is of the time per answer.
    """
    sides = [{generated.position: generated for generated in side} for side in (run, target)]
    figures: dict[str, float | None] = {}
    for key in OF_ANSWERS:
        name = METRICS[key].delta_key if METRICS[key].as_speedup else key
        parts = versus(METRICS[key], sides[0], sides[1]) or (None, None, None)
        figures |= {
            f"{name}_versus_target{end}": value for end, value in zip(("", "_low", "_high"), parts, strict=True)
        }
    return figures


def _value(pairs: Pairs) -> float | None:
    total = sum(denominator for _, denominator in pairs)
    return sum(numerator for numerator, _ in pairs) / total if total else None
