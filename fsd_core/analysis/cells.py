"""One metric of one run against the baseline: value, difference, and whether the difference is real."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fsd_core.analysis.comparability import same_distribution
from fsd_core.calibration.findings import gained
from fsd_core.config.model_names import called
from fsd_core.evaluation.aggregate import Runaways, is_moved, runaways, summarise
from fsd_core.evaluation.versus import clusters_of, versus
from fsd_core.metrics import FIDELITY, METRICS, Metric, compared, differences
from fsd_core.statistics.intervals import Estimate
from fsd_core.statistics.paired import PairedDifference, holm, paired_difference, sequential_difference
from fsd_core.texts import ROUGH_MARK, Written, decimals, number_text

if TYPE_CHECKING:
    from fsd_core.storage.records import PromptCounts, Prompts, RunView

    Counts = Mapping[int, PromptCounts]


# Mid-tones with a contrast of 3:1 on white and on the dark theme, distinct for the usual kinds of colour blindness.
# A family has its own marker too.
PALETTE = ("#0d9488", "#ea6a12", "#8b5cf6", "#db2777", "#65a30d", "#0891b2", "#c2410c", "#6366f1")


class Family(NamedTuple):
    """Runs that differ only in their rule's knob and the seed: one line of a figure."""

    name: str
    colour: str
    symbol: str
    runs: list[RunView]


def metrics(run: RunView) -> dict[str, Any]:
    """Return a run's metrics. Empty before it has any."""
    return run.metrics or {}


def measured(runs: Iterable[RunView]) -> list[RunView]:
    """Return the runs that have metrics."""
    return [run for run in runs if run.metrics]


def families(runs: Sequence[RunView]) -> list[Family]:
    """Group the runs into lines, in the order of first appearance. Each line is sorted by threshold, then seed."""
    groups: dict[tuple, list[RunView]] = {}
    for run in runs:
        groups.setdefault((run.pair, run.task, run.decoding.without_knob()), []).append(run)
    shared_prefix = len({(run.pair, run.task) for run in runs}) < 2
    names = Counter(run[0].decoding.line for run in groups.values())
    lines, colours, used = [], iter(PALETTE * (len(groups) // len(PALETTE) + 1)), set()
    for (pair, task, bare), members in groups.items():
        rule = bare.acceptance
        colour = rule.colour
        if colour is None or colour in used:
            colour = next(colours)
        used.add(colour)
        name = bare.line
        if not shared_prefix or names[bare.line] > 1:
            name = f"{called(pair)} · {task} · {name}"
        ordered = sorted(
            members, key=lambda run: (run.decoding.threshold is None, run.decoding.threshold or 0, run.seed)
        )
        lines.append(Family(name, colour, rule.symbol, ordered))
    return _numbered(lines)


def run_names(runs: Sequence[RunView]) -> dict[str, str]:
    """Return a name for each run, by id, as short as distinguishes these runs.

    It is the label, with pair, task, load, seed and id as needed.
    """
    names = {run.id: run.label for run in runs}
    for prefix in (
        lambda run: f"{called(run.pair)} · " if len({r.pair for r in runs}) > 1 else "",
        lambda run: f"{run.task} · " if len({r.task for r in runs}) > 1 else "",
    ):
        names = {run.id: prefix(run) + names[run.id] for run in runs}
    suffixes = [lambda run: f"seed {run.seed}", lambda run: f"{run.prompts_total} prompts", lambda run: run.id[:6]]
    if len({run.config.load for run in runs}) > 1:
        suffixes.insert(0, lambda run: run.config.load_text)
    for suffix in suffixes:
        count = Counter(names.values())
        names = {run.id: names[run.id] + (f" · {suffix(run)}" if count[names[run.id]] > 1 else "") for run in runs}
    return names


def names_beside(runs: Sequence[RunView], baseline: RunView) -> dict[str, str]:
    """Return the names of runs and of their baseline, which may be none of them."""
    return run_names(runs if any(run.id == baseline.id for run in runs) else [*runs, baseline])


def _numbered(lines: list[Family]) -> list[Family]:
    """Number the families that differ only in what a label leaves out, such as top-p."""
    count, seen = Counter(family.name for family in lines), Counter[str]()
    numbered = []
    for family in lines:
        seen[family.name] += 1
        suffix = f" ({seen[family.name]})" if count[family.name] > 1 else ""
        numbered.append(family._replace(name=family.name + suffix))
    return numbered


SIGNIFICANT = 0.05
_DRAFT_COMMENTS = {"negative_log_likelihood": "under the draft", "target_passes": "of the draft"}
"""remarks on metrics of the target, for a draft that decodes alone: there they are the draft's"""


class CellText(NamedTuple):
    """A cell as text: its value with its interval, and the difference from the baseline with that interval's ends."""

    value: Written
    change: str = ""
    ends: str = ""


class Cell(NamedTuple):
    """One metric of one run. ``delta`` is relative to the baseline: a ratio if ``metric.as_ratio``, how many times as
    fast if ``metric.as_speedup``, else a difference."""

    metric: Metric
    estimate: Estimate | None
    delta: Estimate | None = None
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

    @property
    def text(self) -> CellText | None:
        """The cell as every page and file writes it; ``None`` for a run without the metric."""
        if self.estimate is None:
            return None
        value = self.metric.written(*self.estimate)
        if self.delta is None:
            return CellText(value)
        return CellText(value, *delta_text(self.delta, self.metric, decimals(*self.estimate)))

    @property
    def verdict(self) -> int:
        """+1 if the run is significantly better than the baseline, -1 if significantly worse, else 0.

        Accuracy uses McNemar's exact test, Holm-corrected, or the bounds of a calibration. Every other metric uses the
        interval of its delta. A score interval can exclude 0 where the exact test is not significant, so only one of
        them decides.
        """
        if self.delta is None:
            return 0
        neutral = 1.0 if self.metric.as_ratio else 0.0
        if self.paired is not None and not self.paired.sequential:
            p = self.paired.p_value if self.corrected_p is None else self.corrected_p
            low = high = self.delta.value if p < SIGNIFICANT else neutral
        else:
            low, high = self.delta.low, self.delta.high
        if low is None or high is None:
            return 0
        return self.metric.more_is_better * ((low > neutral) - (high < neutral))


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
    for cell in cells:
        metric = cell.metric
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
    concerned = [c.delta is not None and is_moved(c.metric) for c in row]
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
        return Cell(metric, value, comment=comment)
    if is_per_model and (run.pair, only_model(run)) != (baseline.pair, only_model(baseline)):
        return Cell(metric, value, comment=comment)
    if metric.key != "accuracy":
        return Cell(metric, value, against(run, baseline, metric, prompts), comment=comment)
    if (paired := accuracy_difference(run, baseline, prompts)) is None:
        return Cell(metric, value)
    return Cell(metric, value, Estimate(100 * paired.difference, *(100 * end for end in paired.interval)), paired)


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


_ROUNDING = 1e-9
"""smaller differences are none"""


def displayed_columns(rows: Sequence[Sequence[Cell]]) -> list[tuple[Cell, ...]]:
    """Return the cells of each metric that any run has. Fidelity is left out if any run has an accuracy."""
    columns = list(zip(*rows, strict=True))
    filled = [column for column in columns if any(cell.estimate for cell in column)]
    scored = not filled or any(first.metric.key == "accuracy" for first, *_ in filled)
    return [column for column in filled or columns if not (scored and column[0].metric.key in FIDELITY)]


def delta_text(delta: Estimate, metric: Metric, digits: int) -> tuple[str, str]:
    """Return a difference such as ``−4 pts``, a ratio such as ``1.8×`` or ``1.8× as fast``, and its interval, such as
    ``−10 to +2``, if any. Without the interval that the metric has it is marked as rough, unless both sides are equal.

    A difference without an interval has the digits of the values themselves.
    """
    if metric.as_ratio or delta.low is not None:
        digits = decimals(*delta)
    if metric.as_ratio:
        text = f"{number_text(delta.value, max(digits, 1))}×{' as fast' * metric.as_speedup}"
        ends = (number_text(end, max(digits, 1)) for end in delta[1:] if end is not None)
    else:
        text = number_text(delta.value, digits, signed=True) + (" pts" if metric.unit == "%" else "")
        ends = (number_text(end, digits, signed=True) for end in delta[1:] if end is not None)
    rough = metric.is_rough(delta.value, delta.low) and abs(delta.value - metric.as_ratio) > _ROUNDING
    return ROUGH_MARK * rough + text, " to ".join(ends)


def by_category(prompts: Mapping[int, PromptCounts], categories: Mapping[int, str]) -> dict[str, dict[str, Any]]:
    """Return the metrics of a run's prompts for each category, in the order of the categories' first prompts.

    ``categories``: by position. Empty if fewer than two categories occur.
    """
    groups: dict[str, list[PromptCounts]] = {}
    for position, counts in sorted(prompts.items()):
        if category := categories.get(position):
            groups.setdefault(category, []).append(counts)
    return {name: summarise(group, None) for name, group in groups.items()} if len(groups) > 1 else {}
