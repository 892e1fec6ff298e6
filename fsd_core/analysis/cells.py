"""One metric of one run beside the baseline's: value, difference, and whether the difference is sure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fsd_core.analysis.series import metrics
from fsd_core.conditions import differences
from fsd_core.evaluation.versus import versus
from fsd_core.metrics import FIDELITY, METRICS, Metric, compared
from fsd_core.statistics.intervals import Estimate
from fsd_core.statistics.paired import PairedDifference, holm, paired_difference

if TYPE_CHECKING:
    from fsd_core.storage.records import PromptCounts, Prompts, RunView

    Counts = Mapping[int, PromptCounts]

SIGNIFICANT = 0.05
_OF_ONE_MODEL = {"negative_log_likelihood": "under the draft", "target_passes": "of the draft"}
"""metrics of the target that are the draft's where it decodes alone, and what is then said"""


class Cell(NamedTuple):
    """One metric of one run. ``delta`` is against the baseline: a difference, or a ratio where the metric says so."""

    estimate: Estimate | None
    delta: Estimate | None
    paired: PairedDifference | None = None
    """of the accuracy"""
    corrected_p: float | None = None
    """its p-value, corrected by Holm for all runs that are compared to the same baseline"""
    remark: str = ""
    """what sets the value apart from the others of its column"""
    mixed: tuple[str, ...] = ()
    """why the value is not one figure: what differs between the sittings of the run, for a metric that is timed"""
    delta_mixed: tuple[str, ...] = ()
    """the same of ``delta``: what differs between and within the two runs"""

    def verdict(self, metric: Metric) -> int:
        """+1 if the run is better than the baseline beyond doubt, -1 if worse, 0 if that cannot be told.

        For accuracy McNemar's exact test decides, corrected by Holm, for every other metric the interval of the delta.
        A score interval can leave 0 out where the exact test does not; one rule decides, so that they never quarrel.
        """
        if self.delta is None:
            return 0
        neutral = 1.0 if metric.as_ratio else 0.0
        if self.paired is not None:
            p = self.paired.p_value if self.corrected_p is None else self.corrected_p
            low = high = self.delta.value if p < SIGNIFICANT else neutral
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


def solved(counts: Counts) -> dict[int, bool]:
    """Which prompts were solved, by position; without those that nothing scores."""
    return {position: done.outcome == "correct" for position, done in counts.items() if done.outcome != "unscored"}


def cells(runs: Sequence[RunView], baseline: RunView, prompts: Prompts) -> dict[str, list[Cell]]:
    """The cells of each run by its id, in the order of :func:`fsd_core.metrics.compared`.

    Where several runs are held against the baseline, their p-values are corrected by Holm.
    """
    found = {run.id: [cell(run, baseline, metric, prompts) for metric in compared()] for run in runs}
    tested = [(id, i, c.paired) for id, row in found.items() for i, c in enumerate(row) if c.paired is not None]
    corrected = holm([paired.p_value for *_, paired in tested])
    for (id, i, _), p in zip(tested, corrected, strict=True):
        found[id][i] = found[id][i]._replace(corrected_p=p)
    return found


def delta_columns(cells: Sequence[Cell]) -> dict[str, float | str | None]:
    """A run's differences from the baseline as columns of a table, in the units in which metrics are stored.

    ``accuracy_difference``, ``tokens_per_second_ratio`` and so on, each with ``_low`` and ``_high``; ``mcnemar_p`` is
    of the accuracy, ``mcnemar_p_holm`` corrected for the other runs of the comparison. ``None`` where there is nothing
    to compare. ``speed_mixed`` and ``speed_ratio_mixed`` name the conditions for which the run's speeds and times, and
    ratios of them, are not one figure.
    """
    columns: dict[str, float | str | None] = {}
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
            columns["mcnemar_p_holm"] = cell.corrected_p
    columns["speed_mixed"] = ", ".join(dict.fromkeys(name for cell in cells for name in cell.mixed)) or None
    columns["speed_ratio_mixed"] = ", ".join(dict.fromkeys(name for cell in cells for name in cell.delta_mixed)) or None
    return columns


def only_model(run: RunView) -> str:
    """The model whose likelihood and whose passes the run reports: a draft alone never asks the target."""
    return "draft" if run.decoding.acceptance.kind == "draft-only" else "target"


def ratio_mixed(run: RunView, baseline: RunView) -> tuple[str, ...]:
    """Why a ratio of their speeds is not one of their settings alone: the conditions that differ. Empty if it is."""
    between = (difference.name for difference in differences([run.conditions, baseline.conditions]))
    return tuple(dict.fromkeys([*run.speed_mixed, *baseline.speed_mixed, *between]))


def cell(run: RunView, baseline: RunView, metric: Metric, prompts: Prompts) -> Cell:
    """The run's cell; without a difference where the two have no prompt of one task in common."""
    found = _cell(run, baseline, metric, prompts)
    if not metric.timed:
        return found
    return found._replace(
        mixed=run.speed_mixed if found.estimate else (), delta_mixed=ratio_mixed(run, baseline) if found.delta else ()
    )


def _cell(run: RunView, baseline: RunView, metric: Metric, prompts: Prompts) -> Cell:
    ours = estimate(run, metric)
    of_model = metric.key in _OF_ONE_MODEL
    remark = _OF_ONE_MODEL[metric.key] if ours and of_model and only_model(run) == "draft" else ""
    if run.id == baseline.id or ours is None or metric.key in FIDELITY:
        return Cell(ours, None, remark=remark)
    if of_model and (run.pair, only_model(run)) != (baseline.pair, only_model(baseline)):
        return Cell(ours, None, remark=remark)
    if metric.key == "accuracy":
        return _accuracy(ours, *(solved(side) for side in shared(run, baseline, prompts)))
    return Cell(ours, against(run, baseline, metric, prompts), remark=remark)


def shared(run: RunView, baseline: RunView, prompts: Prompts) -> tuple[Counts, Counts]:
    """What was counted of the prompts that both have done; nothing for runs of different tasks."""
    ours, theirs = (prompts.get(one.id, {}) if run.task == baseline.task else {} for one in (run, baseline))
    both = ours.keys() & theirs.keys()
    return {key: ours[key] for key in both}, {key: theirs[key] for key in both}


def against(run: RunView, baseline: RunView, metric: Metric, prompts: Prompts) -> Estimate | None:
    """The metric relative to the baseline's, in the unit of its column, on the prompts that both have done."""
    if run.id == baseline.id:
        return Estimate(1.0 if metric.as_ratio else 0.0)
    ours, theirs = shared(run, baseline, prompts)
    if metric.key == "seconds_per_solved_task":
        a, b = _seconds_per_solved(ours), _seconds_per_solved(theirs)
        return Estimate(a / b) if a and b else None
    if (found := versus(metric, ours, theirs)) is None:
        return None
    scale = 1.0 if metric.as_ratio else metric.scale
    return Estimate(*(None if end is None else end * scale for end in found))  # pyright: ignore[reportArgumentType]


def speedup(run: RunView, baseline: RunView, prompts: Prompts) -> Estimate | None:
    """Tokens per second of ``run`` over those of ``baseline``, on the prompts that both have done."""
    return against(run, baseline, METRICS["tokens_per_second"], prompts)


def _seconds_per_solved(counts: Counts) -> float | None:
    """With the prompts that failed, whose time is lost as well."""
    right = sum(solved(counts).values())
    return sum(done.seconds for done in counts.values()) / right if right else None


def _accuracy(ours: Estimate, a: dict[int, bool], b: dict[int, bool]) -> Cell:
    if not a.keys() & b.keys():
        return Cell(ours, None)
    paired = paired_difference(a, b)
    return Cell(ours, Estimate(100 * paired.difference, *(100 * end for end in paired.interval)), paired)
