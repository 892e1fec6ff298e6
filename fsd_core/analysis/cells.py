"""One metric of one run against the baseline: value, difference, and whether the difference is significant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fsd_core.analysis.same_distribution import same_distribution
from fsd_core.analysis.series import metrics
from fsd_core.calibration.measured import gained
from fsd_core.conditions import differences
from fsd_core.evaluation.prompt_clusters import clusters_of
from fsd_core.evaluation.runaways import Runaways, is_moved, runaways
from fsd_core.evaluation.versus import versus
from fsd_core.metrics import FIDELITY, METRICS, Metric, compared
from fsd_core.statistics.intervals import Estimate
from fsd_core.statistics.paired import PairedDifference, holm, paired_difference, sequential_difference

if TYPE_CHECKING:
    from fsd_core.storage.records import PromptCounts, Prompts, RunView

    Counts = Mapping[int, PromptCounts]

SIGNIFICANT = 0.05
_DRAFT_COMMENTS = {"negative_log_likelihood": "under the draft", "target_passes": "of the draft"}
"""remarks on metrics of the target, for a draft that decodes alone: there they are the draft's"""


class Cell(NamedTuple):
    """One metric of one run. ``delta`` is relative to the baseline: a ratio if ``metric.as_ratio``, how many times as
    fast if ``metric.as_speedup``, else a difference."""

    estimate: Estimate | None
    delta: Estimate | None
    paired: PairedDifference | None = None
    """paired difference of the accuracy"""
    corrected_p: float | None = None
    """its p-value, Holm-corrected over all runs that are compared to the same baseline"""
    comment: str = ""
    """how the value differs in kind from the others of its column"""
    mixed: tuple[str, ...] = ()
    """for a timed metric: conditions that differ between the measurement sessions of the run"""
    delta_mixed: tuple[str, ...] = ()
    """the same for ``delta``: conditions that differ between and within the two runs"""
    rare: Runaways | None = None
    """for a comparison that runaways move: those that were seen, and how many more there may be"""

    def verdict(self, metric: Metric) -> int:
        """Return +1 if the run is significantly better than the baseline, -1 if significantly worse, else 0.

        Accuracy uses McNemar's exact test, Holm-corrected, or the bounds of a calibration. Every other metric uses the
        interval of its delta. A score interval can exclude 0 where the exact test is not significant, so only one of
        them decides.
        """
        if self.delta is None:
            return 0
        neutral = 1.0 if metric.as_ratio else 0.0
        if self.paired is not None and not self.paired.sequential:
            p = self.paired.p_value if self.corrected_p is None else self.corrected_p
            low = high = self.delta.value if p < SIGNIFICANT else neutral
        else:
            low, high = self.delta.low, self.delta.high
        if low is None or high is None:
            return 0
        return metric.more_is_better * ((low > neutral) - (high < neutral))


def estimate(run: RunView, metric: Metric) -> Estimate | None:
    """Return a run's value of a metric in the unit of its column."""
    value, low, high = (metrics(run).get(metric.key + end) for end in ("", "_low", "_high"))
    if value is None or not math.isfinite(value):
        return None
    if low is None or high is None:
        return Estimate(value * metric.scale)
    return Estimate(value * metric.scale, low * metric.scale, high * metric.scale)


def solved(counts: Counts) -> dict[int, bool]:
    """Return whether each scored prompt was solved, by position. Unscored prompts are left out."""
    return {position: done.outcome == "correct" for position, done in counts.items() if done.outcome != "unscored"}


def cells(runs: Sequence[RunView], baseline: RunView, prompts: Prompts) -> dict[str, list[Cell]]:
    """Return the cells of each run by its id, in the order of :func:`fsd_core.metrics.compared`.

    P-values are Holm-corrected if several runs are compared to the baseline.
    """
    rows = {run.id: _row(run, baseline, prompts) for run in runs}
    tested = [
        (id, i, c.paired) for id, row in rows.items() for i, c in enumerate(row) if c.paired and not c.paired.sequential
    ]
    corrected = holm([paired.p_value for *_, paired in tested])
    for (id, i, _), p in zip(tested, corrected, strict=True):
        rows[id][i] = rows[id][i]._replace(corrected_p=p)
    return rows


def rare_of(row: Sequence[Cell]) -> Runaways | None:
    """Return the runaways of a run, which all its cells have that have any."""
    return next((cell.rare for cell in row if cell.rare), None)


def delta_columns(cells: Sequence[Cell]) -> dict[str, float | str | None]:
    """Return a run's differences from the baseline as table columns, in the units in which metrics are stored.

    The columns are ``accuracy_difference``, ``tokens_per_second_ratio`` and so on, each with ``_low`` and ``_high``.
    ``speedup`` is of the time per answer.
    ``mcnemar_p`` is for the accuracy; ``mcnemar_p_holm`` is corrected for the other runs of the comparison. A column is
    ``None`` if there is nothing to compare. ``runaways_at_most`` is the share of answers that may be runaways, at 95 %;
    ``None`` for a lossless run, whose runaways are the baseline's. ``speed_mixed`` and ``speed_ratio_mixed`` name the
    conditions that differ within the run's speeds and times, and within their ratios.
    """
    columns: dict[str, float | str | None] = {}
    for cell, metric in zip(cells, compared(), strict=True):
        scale = 1.0 if metric.as_ratio else metric.scale
        for end in ("value", "low", "high"):
            value = getattr(cell.delta, end) if cell.delta else None
            columns[metric.delta_key + ("" if end == "value" else f"_{end}")] = None if value is None else value / scale
        if metric.key == "accuracy":
            columns["mcnemar_p"] = cell.paired.p_value if cell.paired and not cell.paired.sequential else None
            columns["mcnemar_p_holm"] = cell.corrected_p
    rare = rare_of(cells)
    columns["runaways_at_most"] = rare.most if rare else None
    columns["speed_mixed"] = ", ".join(dict.fromkeys(name for cell in cells for name in cell.mixed)) or None
    columns["speed_ratio_mixed"] = ", ".join(dict.fromkeys(name for cell in cells for name in cell.delta_mixed)) or None
    return columns


def only_model(run: RunView) -> str:
    """Return the model whose likelihood and passes the run reports. A draft alone never runs the target."""
    return "draft" if run.decoding.acceptance.kind == "draft-only" else "target"


def ratio_mixed(run: RunView, baseline: RunView) -> tuple[str, ...]:
    """Return the conditions that differ between and within the runs. Empty if their speed ratio depends on settings
    alone."""
    between = (difference.name for difference in differences([run.conditions, baseline.conditions]))
    return tuple(dict.fromkeys([*run.speed_mixed, *baseline.speed_mixed, *between]))


def _row(run: RunView, baseline: RunView, prompts: Prompts) -> list[Cell]:
    row = [cell(run, baseline, metric, prompts) for metric in compared()]
    concerned = [c.delta is not None and is_moved(metric) for c, metric in zip(row, compared(), strict=True)]
    rare = unseen_runaways(run, baseline, prompts) if any(concerned) else None
    return [c._replace(rare=rare) if concerns else c for c, concerns in zip(row, concerned, strict=True)]


def cell(run: RunView, baseline: RunView, metric: Metric, prompts: Prompts) -> Cell:
    """Return the run's cell, without its runaways. It has no difference if the two runs share no prompt of the same
    task."""
    result = _cell(run, baseline, metric, prompts)
    if not metric.timed:
        return result
    return result._replace(
        mixed=run.speed_mixed if result.estimate else (), delta_mixed=ratio_mixed(run, baseline) if result.delta else ()
    )


def _cell(run: RunView, baseline: RunView, metric: Metric, prompts: Prompts) -> Cell:
    value = estimate(run, metric)
    is_per_model = metric.key in _DRAFT_COMMENTS
    comment = _DRAFT_COMMENTS[metric.key] if value and is_per_model and only_model(run) == "draft" else ""
    if run.id == baseline.id or value is None or metric.key in FIDELITY:
        return Cell(value, None, comment=comment)
    if is_per_model and (run.pair, only_model(run)) != (baseline.pair, only_model(baseline)):
        return Cell(value, None, comment=comment)
    if metric.key == "accuracy":
        return _accuracy(value, run, baseline, prompts)
    return Cell(value, against(run, baseline, metric, prompts), comment=comment)


def shared(run: RunView, baseline: RunView, prompts: Prompts) -> tuple[Counts, Counts]:
    """Return both runs' counts of the prompts that both have done. Empty for runs of different tasks."""
    run_counts, baseline_counts = (
        prompts.get(side.id, {}) if run.task == baseline.task else {} for side in (run, baseline)
    )
    both = sorted(run_counts.keys() & baseline_counts.keys())
    return {key: run_counts[key] for key in both}, {key: baseline_counts[key] for key in both}


def unseen_runaways(run: RunView, baseline: RunView, prompts: Prompts) -> Runaways | None:
    """Return the run's runaways on the prompts that both have done; ``None`` for a lossless run beside the same target,
    because its runaways are the baseline's, and without such a prompt."""
    return None if same_distribution(run, baseline) else runaways(*shared(run, baseline, prompts))


def against(run: RunView, baseline: RunView, metric: Metric, prompts: Prompts) -> Estimate | None:
    """Return the metric relative to the baseline's, in the unit of its column, on the prompts that both have done."""
    if run.id == baseline.id:
        return Estimate(1.0 if metric.as_ratio else 0.0)
    run_counts, baseline_counts = shared(run, baseline, prompts)
    if metric.key == "seconds_per_solved_task":
        a, b = _seconds_per_solved(run_counts), _seconds_per_solved(baseline_counts)
        return Estimate(a / b) if a and b else None
    if (relative := versus(metric, run_counts, baseline_counts)) is None:
        return None
    scale = 1.0 if metric.as_ratio else metric.scale
    return Estimate(*(None if end is None else end * scale for end in relative))  # pyright: ignore[reportArgumentType]


def speedup(run: RunView, baseline: RunView, prompts: Prompts) -> Estimate | None:
    """Return how many times as fast ``run`` is as ``baseline`` by time per answer, on the prompts that both have done.

    It is the one figure that every page, file and program calls so many times as fast.
    """
    return against(run, baseline, METRICS["seconds_per_answer"], prompts)


def throughput_ratio(run: RunView, baseline: RunView, prompts: Prompts) -> Estimate | None:
    """Return the tokens per second of ``run`` over those of ``baseline``, on the prompts that both have done."""
    return against(run, baseline, METRICS["tokens_per_second"], prompts)


def _seconds_per_solved(counts: Counts) -> float | None:
    """Return the seconds per solved prompt. The time of failed prompts counts too."""
    num_solved = sum(solved(counts).values())
    return sum(done.seconds for done in counts.values()) / num_solved if num_solved else None


def _accuracy(value: Estimate, run: RunView, baseline: RunView, prompts: Prompts) -> Cell:
    paired = accuracy_difference(run, baseline, prompts)
    if paired is None:
        return Cell(value, None)
    return Cell(value, Estimate(100 * paired.difference, *(100 * end for end in paired.interval)), paired)


def accuracy_difference(run: RunView, baseline: RunView, prompts: Prompts) -> PairedDifference | None:
    """Return the run's accuracy less the baseline's on the prompts that both have done; ``None`` without a scored one.

    A calibration goes on until its prompts suffice, so of its prompts the fresh ones count, and its bets decide.
    """
    ours, theirs = shared(run, baseline, prompts)
    trial = run.trial or baseline.trial
    if trial is None:
        a, b = solved(ours), solved(theirs)
        return paired_difference(a, b, clusters=clusters_of(ours)) if a.keys() & b.keys() else None
    chose, reference = (side.trial.chose if side.trial else {} for side in (run, baseline))
    fresh, earlier = gained(ours, theirs, trial.fresh), gained(chose, reference, chose)
    return sequential_difference(fresh, earlier, *trial[2:]) if fresh else None
