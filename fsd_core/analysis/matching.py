"""Rules of stored runs at matched points: which are curves, which are marks, and what they are compared to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fsd_core.analysis.cells import ratio_mixed
from fsd_core.analysis.comparability import (
    COSTS,
    Cost,
    comparable,
    exact,
    measured_of,
    on_one_ground,
    reference_of,
    target_of,
    untruncated,
)
from fsd_core.analysis.quality import ACCURACY_QUALITY, Quality
from fsd_core.analysis.series import Family, families, run_names
from fsd_core.config import DecodingConfig
from fsd_core.config.baselines import missing
from fsd_core.errors import OutOfRange, UnknownName
from fsd_core.formatting import count
from fsd_core.statistics.intervals import Estimate, pareto_front
from fsd_core.statistics.noninferiority import checked_margin
from fsd_core.statistics.ranking import OUTSIDE, AtCost, WithinLoss, at_ratio, within
from fsd_core.statistics.tradeoff_curves import Curves, PathPosition, nondegenerate_interval

if TYPE_CHECKING:
    from fsd_core.storage.records import Prompts, RunView

GREATEST_RATIO = 100.0


class MatchedPoint(NamedTuple):
    """One measured setting."""

    name: str
    knob: float | None
    """``None`` if off or without a knob"""
    column: int
    difference: Estimate
    """quality less the target's; from -1 to 1 for accuracy"""
    ratio: Estimate | None
    """how many times less it costs than the reference; ``None`` for a draft alone, which never runs the target"""
    on_front: bool = False
    mixed: tuple[str, ...] = ()


class KnobLine(NamedTuple):
    """A rule with its knob's values, strictest first: a curve if it has at least two, else a mark."""

    name: str
    kind: str
    colour: str
    symbol: str
    points: list[MatchedPoint]
    at: np.ndarray
    """how many times less it costs, ascending, [R]; empty for a mark"""
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    """the curve and its band, [R] each"""

    @property
    def is_exact(self) -> bool:
        """Whether its strictest setting is exact SD."""
        return self.points[0].knob is None

    @property
    def is_curve(self) -> bool:
        return len(self.at) > 0

    def between(self, position: PathPosition) -> str:
        """Return the knob's values around a position on the curve, such as ``0.1`` or ``0.1 to 0.2``."""
        names = {p.column: "off" if p.knob is None else f"{p.knob:g}" for p in self.points}
        ends = (
            (position.stricter,)
            if position.share < 0.005
            else (position.looser,)
            if position.share > 0.995
            else position[:2]
        )
        return " to ".join(names[column] for column in ends)


class MatchedComparison(NamedTuple):
    """The comparison of runs at matched points. Without ``curves``, ``notes`` say why."""

    cost: Cost
    notes: list[str]
    """sentences: what was left out, what is missing"""
    lines: Sequence[KnobLine] = ()
    reference: str = ""
    """name of the setting whose cost is 1"""
    target: str = ""
    """name of the setting whose quality the differences are against"""
    prompts: int = 0
    curves: Curves | None = None
    absent: tuple[DecodingConfig, ...] = ()
    """the baselines that were not measured"""
    front: tuple[str, ...] = ()
    """families of the settings on the Pareto front"""
    quality: Quality = ACCURACY_QUALITY

    @property
    def compared(self) -> list[KnobLine]:
        return [line for line in self.lines if line.is_curve]

    @property
    def baseline_lines(self) -> list[KnobLine]:
        """Lines without a curve: baselines, and rules with only one measured setting."""
        return [line for line in self.lines if not line.is_curve]

    @property
    def paths(self) -> dict[str, tuple[int, ...]]:
        return {line.name: tuple(point.column for point in line.points) for line in self.compared}

    def line(self, name: str) -> KnobLine:
        return next(line for line in self.lines if line.name == name)

    def at_ratio(self, ratio: float) -> list[AtCost]:
        """Return the rules, smallest loss first, without ranks if the quality is not ranked. Raises ``InvalidSetting``
        for an invalid ratio."""
        if not checked_ratio(ratio) > 0 or self.curves is None:
            return []
        rows = at_ratio(self.curves, self.paths, ratio)
        if self.quality.is_ranked:
            return rows
        return [row if row.rank == OUTSIDE else row._replace(rank=None, prompts=None) for row in rows]

    def within(self, points: float) -> list[WithinLoss]:
        """Return the rules, fastest first. Empty if the quality is not ranked. Raises ``InvalidSetting`` outside 0 to
        20 points."""
        if checked_margin(points) < 0 or self.curves is None or not self.quality.is_ranked:
            return []
        return within(self.curves, self.paths, points, [line.name for line in self.compared if line.is_exact])


def checked_ratio(ratio: float | None) -> float:
    """Return the ratio. Raises ``InvalidSetting`` if it is missing or outside 1/100 to 100."""
    if ratio is None or not 1 / GREATEST_RATIO <= ratio <= GREATEST_RATIO:
        text = "missing" if ratio is None else f"{ratio:g}"
        raise OutOfRange(f"The ratio is {text}: expected how many times fewer, such as 1.3, from 0.01 to 100.")
    return ratio


def match(
    runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts, cost: str = "target_passes"
) -> MatchedComparison:
    """Match the finished runs that share the baseline's pair, task, sampling and length limit.

    Quality is compared to the target alone, or to exact SD if that is missing. It is accuracy or, if nothing is scored,
    how likely the target finds the texts. Costs are relative to exact SD (the baseline if it is one, else the first),
    or to the target alone. Several seeds of a setting are averaged by prompt. A rule whose knob can be off begins at SD
    with the same drafts, which it equals there. Raises ``UnknownName`` for an unknown cost.
    """
    if cost not in COSTS:
        raise UnknownName(f"There is no cost '{cost}': expected one of {', '.join(COSTS)}.")
    selected = COSTS[cost]
    if baseline is None:
        return MatchedComparison(selected, ["No run is chosen."])
    same, notes = on_one_ground(runs, baseline, selected)
    target, reference, absent = target_of(same), reference_of(same, baseline), tuple(missing(_drafting_first(same)))
    if target is None or reference is None:
        why = "Neither the target alone nor exact SD is among the finished runs: without one nothing can be matched."
        return MatchedComparison(selected, [*notes, why], absent=absent)
    quality, settings, positions = comparable(same, prompts)
    if not positions:
        why = "The runs have no prompt in common that all of them answered, so there is nothing to match."
        return MatchedComparison(selected, [*notes, why], absent=absent)
    same = [run for runs in settings.values() for run in runs]
    longest = max(len(prompts[run.id]) for run in same)
    if 2 * len(positions) < longest:
        notes = [
            *notes,
            f"Only {count(len(positions), 'prompt')} of {longest} are in all runs: leave out the shortest.",
        ]
    curves = Curves(
        measured_of(settings, target.setting_id, reference.setting_id, positions, prompts, selected, quality)
    )
    columns, points = {id: i for i, id in enumerate(settings)}, _points(settings, curves, selected, target, reference)
    lines = [_line(family, columns, points, curves, exact(same), target) for family in families(same)]
    lines, front = _with_front(lines) if quality.is_ranked else (lines, ())
    names = run_names(same)
    return MatchedComparison(
        selected, [*notes, *untruncated(same)], lines, names[reference.id], names[target.id], len(positions), curves,
        absent, front, quality,
    )  # fmt: skip


def _drafting_first(runs: Sequence[RunView]) -> list[DecodingConfig]:
    return [run.decoding for run in sorted(runs, key=lambda run: run.decoding.drafter is None)]


def _points(
    settings: Mapping[str, Sequence[RunView]], curves: Curves, cost: Cost, target: RunView, reference: RunView
) -> list[MatchedPoint]:
    names = run_names([runs[0] for runs in settings.values()])
    low, high = curves.ends(*curves.settings())
    ratios = curves.cost_intervals()
    points = []
    for i, (id, runs) in enumerate(settings.items()):
        ends = (None, None) if id == target.setting_id else nondegenerate_interval(low[i], high[i]) or (None, None)
        ratio = None
        if not np.isnan(curves.cost[i]):
            spent = float(curves.cost[i])
            ratio = Estimate(1 / spent, *((1 / r.high, 1 / r.low) if (r := ratios[i]) else (None, None)))
        mixed = tuple(dict.fromkeys(name for run in runs for name in ratio_mixed(run, reference))) if cost.timed else ()
        difference = Estimate(float(curves.difference[i]), *ends)
        points.append(MatchedPoint(names[runs[0].id], runs[0].decoding.threshold, i, difference, ratio, mixed=mixed))
    return points


def _line(
    family: Family, columns: Mapping[str, int], points: Sequence[MatchedPoint], curves: Curves,
    exact: Sequence[RunView], target: RunView,
) -> KnobLine:  # fmt: skip
    first = family.runs[0].decoding
    rule, name = first.acceptance, family.name
    if rule.kind == "autoregressive":
        same_sampling = first.sampling == target.decoding.sampling
        name = rule.title if same_sampling else f"{rule.title} · {', '.join(first.sampling.cut) or 'all tokens'}"
    by_knob = {run.decoding.threshold: points[columns[run.setting_id]] for run in family.runs}
    if rule.can_be_off() and None not in by_knob:
        drafts = first.drafter, first.topology
        same = [run for run in exact if (run.decoding.drafter, run.decoding.topology) == drafts]
        if same:
            by_knob[None] = points[columns[same[0].setting_id]]._replace(knob=None)
    values = [knob for knob in by_knob if knob is not None]
    order = [None] * (None in by_knob) + (rule.knob.by_leniency(values) if rule.knob else values)
    ordered = [by_knob[knob] for knob in order]
    empty = np.empty(0)
    if len(ordered) < 2 or any(point.ratio is None for point in ordered):
        return KnobLine(name, rule.kind, family.colour, family.symbol, ordered, *[empty] * 4)
    path = [point.column for point in ordered]
    along = curves.along(path, curves.grid(path))
    low, high = curves.ends(along.value, along.resampled)
    return KnobLine(name, rule.kind, family.colour, family.symbol, ordered, 1 / along.at, along.value, low, high)


def _with_front(lines: Sequence[KnobLine]) -> tuple[list[KnobLine], tuple[str, ...]]:
    """Return the lines with the Pareto-optimal settings marked, and the names of the lines that contribute one.

    The off point of a curve is SD, so it does not count for the curve.
    """
    coordinates = {p.column: (p.ratio.value, p.difference.value) for line in lines for p in line.points if p.ratio}
    order = list(coordinates)
    best = {order[i] for i in pareto_front([coordinates[column] for column in order])}
    marked = [line._replace(points=[p._replace(on_front=p.column in best) for p in line.points]) for line in lines]
    front_lines = [
        line for line in marked if any(p.on_front and (p.knob is not None or not line.is_curve) for p in line.points)
    ]
    return marked, tuple(line.name for line in front_lines)
