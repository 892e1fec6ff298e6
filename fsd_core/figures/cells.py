"""One metric of one run beside the baseline's: value, difference, and whether the difference is sure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fsd_core.benchmarks.paired import PairedDifference, paired_difference
from fsd_core.figures.series import interval, metrics
from fsd_core.metrics import FIDELITY, Metric, compared

if TYPE_CHECKING:
    from fsd_core.tracking.records import Prompts, RunView

SIGNIFICANT = 0.05


class Estimate(NamedTuple):
    """A value with the ends of its 95 % interval, which are ``None`` where none is known."""

    value: float
    low: float | None = None
    high: float | None = None


class Cell(NamedTuple):
    """One metric of one run. ``delta`` is against the baseline: a difference, or a ratio where the metric says so."""

    estimate: Estimate | None
    delta: Estimate | None
    paired: PairedDifference | None = None
    """of the accuracy"""
    remark: str = ""
    """what sets the value apart from the others of its column"""

    def verdict(self, metric: Metric) -> int:
        """+1 if the run is better than the baseline beyond doubt, -1 if worse, 0 if that cannot be told.

        For accuracy McNemar's exact test decides, for every other metric the interval of the delta. A score interval
        can leave 0 out where the exact test does not; one rule decides, so that they never quarrel.
        """
        if self.delta is None:
            return 0
        neutral = 1.0 if metric.as_ratio else 0.0
        if self.paired is not None:
            low = high = self.delta.value if self.paired.p_value < SIGNIFICANT else neutral
        else:
            low, high = self.delta.low, self.delta.high
        if low is None or high is None:
            return 0
        return metric.better * ((low > neutral) - (high < neutral))


def estimate(run: RunView, metric: Metric) -> Estimate | None:
    """A run's value of a metric in the unit of its column."""
    value, low, high = (metrics(run).get(metric.key + end) for end in ("", "_low", "_high"))
    if value is None or not math.isfinite(value):
        return None
    if low is None or high is None:
        return Estimate(value * metric.scale)
    return Estimate(value * metric.scale, low * metric.scale, high * metric.scale)


def solved(prompts: Prompts) -> dict[str, dict[int, bool]]:
    """Which prompts were solved, by run and position; without those that nothing scores."""
    return {
        run_id: {position: done.outcome == "correct" for position, done in counts.items() if done.outcome != "unscored"}
        for run_id, counts in prompts.items()
    }


def cells(run: RunView, baseline: RunView, solved: Mapping[str, dict[int, bool]]) -> list[Cell]:
    """The run's cells, in the order of :func:`fsd_core.metrics.compared`; ``solved`` as :func:`cell` takes it."""
    return [cell(run, baseline, metric, solved) for metric in compared()]


def delta_columns(cells: Sequence[Cell]) -> dict[str, float | None]:
    """A run's differences from the baseline as columns of a table, in the units in which metrics are stored.

    ``accuracy_difference``, ``tokens_per_second_ratio`` and so on, each with ``_low`` and ``_high``; ``mcnemar_p`` is
    of the accuracy. ``None`` where there is nothing to compare.
    """
    columns: dict[str, float | None] = {}
    for cell, metric in zip(cells, compared(), strict=True):
        kind = "ratio" if metric.as_ratio else "difference"
        scale = 1.0 if metric.as_ratio else metric.scale
        for end in ("value", "low", "high"):
            value = getattr(cell.delta, end) if cell.delta else None
            columns[f"{metric.key}_{kind}" + ("" if end == "value" else f"_{end}")] = (
                None if value is None else value / scale
            )
        if metric.key == "accuracy":
            columns["mcnemar_p"] = cell.paired.p_value if cell.paired else None
    return columns


def likelihood_model(run: RunView) -> str:
    """The model whose likelihood the run reports: a draft alone never asks the target."""
    return "draft" if run.decoding.acceptance.kind == "draft-only" else "target"


def cell(run: RunView, baseline: RunView, metric: Metric, solved: Mapping[str, dict[int, bool]]) -> Cell:
    """The run's cell; ``solved`` says by run and position which prompts were solved."""
    ours, theirs = estimate(run, metric), estimate(baseline, metric)
    of_likelihood = metric.key == "negative_log_likelihood"
    remark = "under the draft" if ours and of_likelihood and likelihood_model(run) == "draft" else ""
    if run.id == baseline.id or ours is None or theirs is None or metric.key in FIDELITY:
        return Cell(ours, None, remark=remark)
    if of_likelihood and (run.pair, likelihood_model(run)) != (baseline.pair, likelihood_model(baseline)):
        return Cell(ours, None, remark=remark)
    if metric.key == "accuracy":
        return _accuracy(ours, solved[run.id], solved[baseline.id], same_task=run.task == baseline.task)
    if metric.key == "tokens_per_second":
        return Cell(ours, speedup(run, baseline) if theirs.value and ours.value else None)
    if metric.as_ratio:
        return Cell(ours, Estimate(ours.value / theirs.value) if theirs.value else None)
    return Cell(ours, _difference(ours, theirs), remark=remark)


def speedup(run: RunView, baseline: RunView) -> Estimate:
    """Tokens per second of ``run`` over those of ``baseline``.

    The interval adds the half-widths of both on the log scale in quadrature, taking the two measurements as
    independent; on shared prompts they move together, so the true interval is rather narrower. ``None`` where one
    of the two has no interval, as of a single prompt.
    """
    if run.id == baseline.id:
        return Estimate(1.0, 1.0, 1.0)
    if any(metrics(r).get("tokens_per_second_low") is None for r in (run, baseline)):
        ratio = metrics(run)["tokens_per_second"] / metrics(baseline)["tokens_per_second"]
        return Estimate(ratio)
    (low, value, high), (base_low, base, base_high) = (interval(r, "tokens_per_second") for r in (run, baseline))
    ratio = value / base
    down = math.hypot(math.log(value / low), math.log(base_high / base))
    up = math.hypot(math.log(high / value), math.log(base / base_low))
    return Estimate(ratio, ratio * math.exp(-down), ratio * math.exp(up))


def _accuracy(ours: Estimate, a: dict[int, bool], b: dict[int, bool], same_task: bool) -> Cell:
    if not same_task or not a.keys() & b.keys():
        return Cell(ours, None)
    paired = paired_difference(a, b)
    return Cell(ours, Estimate(100 * paired.difference, *(100 * end for end in paired.interval)), paired)


def _difference(ours: Estimate, theirs: Estimate) -> Estimate:
    """Difference of two estimates; half-widths add in quadrature, as of independent measurements."""
    delta = ours.value - theirs.value
    if ours.low is None or ours.high is None or theirs.low is None or theirs.high is None:
        return Estimate(delta)
    down = math.hypot(ours.value - ours.low, theirs.high - theirs.value)
    up = math.hypot(ours.high - ours.value, theirs.value - theirs.low)
    return Estimate(delta, delta - down, delta + up)
