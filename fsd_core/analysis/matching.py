"""Rules of stored runs at matched points, as curves, marks and tables.

Tables of rules at matched points, for pages, exports and the library: the loss at equal cost, the cost at equal
accuracy, and the settings beside the curves.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fsd_core.analysis.cells import Family, families, ratio_mixed, run_names
from fsd_core.analysis.comparability import (
    ACCURACY_QUALITY,
    COSTS,
    NOT_RANKED,
    Cost,
    Quality,
    comparable,
    exact,
    measured_of,
    on_one_ground,
    reference_of,
    target_of,
    untruncated,
)
from fsd_core.config import DecodingConfig
from fsd_core.config.run_config import missing
from fsd_core.errors import OutOfRange, UnknownName
from fsd_core.metrics import MIXED_MARK
from fsd_core.models.model_pairs import ASSETS, MODEL_PAIRS
from fsd_core.statistics.intervals import Estimate, pareto_front
from fsd_core.statistics.paired import checked_margin
from fsd_core.statistics.tradeoff import (
    BEHIND,
    LEADS,
    OUTSIDE,
    RATIOS,
    TIED,
    AtCost,
    Curves,
    PathPosition,
    WithinLoss,
    at_ratio,
    nondegenerate_interval,
    within,
)
from fsd_core.tasks import TASKS
from fsd_core.texts import count, decimals, number_text, upper_first, written

if TYPE_CHECKING:
    from fsd_core.storage.records import Prompts, RunView


MEASURED = ASSETS / "behind.csv"
"""generated from docs/results/ by ``python -m tools.rules_behind``"""


@cache
def behind(kind: str) -> tuple[str, ...]:
    """Return a sentence for each comparison in which the rule ``kind`` was behind, at the smallest such ratio of target
    passes (docs/findings.md). Intervals are 95 %."""
    with MEASURED.open(encoding="utf-8", newline="") as file:
        return tuple(_sentence(row) for row in csv.DictReader(file) if row["rule"] == kind)


def _sentence(row: dict[str, str]) -> str:
    temperature = float(row["temperature"])
    sampling = f"sampled at temperature {temperature:g}" if temperature else "greedily"
    setup = f"{MODEL_PAIRS[row['pair']].title}, {TASKS[row['task']].title}, {sampling}"
    point = f"at {float(row['ratio']):g} × fewer target passes than SD"
    if row["quality"] == "excess_nll":
        rule, best = _change(row, ""), _change(row, "best_")
        text = (
            f"its texts are less likely than the target's own by {rule} nats a token, those of {row['best']} by {best}"
        )
    else:
        rule, best = _change(row, "", 100.0), _change(row, "best_", 100.0)
        text = f"accuracy changes by {rule} points, with {row['best']} by {best}"
    return f"Measured ({setup}): {point} {text}."


def _change(row: dict[str, str], prefix: str, scale: float = 1.0) -> str:
    value, low, high = (scale * float(row[prefix + name]) for name in ("difference", "low", "high"))
    return written(value, low, high).with_ends(" [{}, {}]")


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
    if selected.timed and (apart := {run.id for run in same if ratio_mixed(run, baseline)} - {baseline.id}):
        same = [run for run in same if run.id not in apart]
        notes.append(f"{count(len(apart), 'run')} left out: measured under other conditions than the baseline.")
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
        if (spent := float(curves.cost[i])) > 0:  # an engine that reports no forwards has none
            ratio = Estimate(1 / spent, *((1 / r.high, 1 / r.low) if (r := ratios[i]) and r.low > 0 else (None, None)))
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


NOT_ENOUGH = "not enough prompts"


class MatchedCell(NamedTuple):
    """One rule at one point."""

    value: str = ""
    """empty if the rule was not measured there"""
    ends: str = ""
    """the 95 % interval, such as ``−4 to +1``"""
    comparison: str = ""
    """how it compares to the other rules"""
    rank: str | None = OUTSIDE
    knob: str = ""
    """the knob's values there, such as ``0.1 to 0.2``"""


class MatchedTable(NamedTuple):
    """A row for each rule, a column for each point."""

    title: str
    columns: list[str]
    rows: list[tuple[str, list[MatchedCell]]]
    verdicts: list[str]
    """a sentence for each column, or for several with the same verdict"""


def tables(
    matched: MatchedComparison, ratios: Sequence[float] = RATIOS, margins: Sequence[float] | None = None
) -> list[MatchedTable]:
    """Return the tables at equal cost and, if the quality is ranked, at equal quality. Empty if nothing could be
    matched.

    ``margins`` are in points, or in hundredths of a nat a token if nothing is scored. They default to the quality's
    own.

    Raises ``InvalidSetting`` for an invalid ratio or margin.
    """
    if not matched.compared:
        return []
    quality = matched.quality
    margins = quality.margins if margins is None else margins
    at_cost = _table(
        f"{quality.lost} at equal {matched.cost.title.lower()}",
        [f"{ratio:g}× {matched.cost.fewer.split()[0]}" for ratio in ratios],
        matched, [matched.at_ratio(r) for r in ratios], partial(_lost, quality), _least,
    )  # fmt: skip
    if not quality.is_ranked:
        return [at_cost._replace(verdicts=[NOT_RANKED])]
    return [
        at_cost,
        _table(
            f"{matched.cost.title} at equal {quality.equal}", [quality.within(m) for m in margins],
            matched, [matched.within(m) for m in margins], _gained, _fastest,
        ),
    ]  # fmt: skip


def _table(
    title: str, columns: list[str], matched: MatchedComparison, results: Sequence[Sequence[Any]],
    cell: Callable[..., MatchedCell], verdict: Callable[..., str],
) -> MatchedTable:  # fmt: skip
    by_name = [{row.family: row for row in rows} for rows in results]
    rows = [
        (line.name, [cell(line, rows[line.name], _has_clear_leader(rows.values())) for rows in by_name])
        for line in matched.compared
    ]
    return MatchedTable(title, columns, rows, _grouped(columns, [verdict(rows) for rows in results]))


def _grouped(columns: Sequence[str], verdicts: Sequence[str]) -> list[str]:
    """Return one sentence for all columns with the same verdict."""
    by_verdict: dict[str, list[str]] = {}
    for column, verdict in zip(columns, verdicts, strict=True):
        by_verdict.setdefault(verdict, []).append(column)
    return [f"{upper_first(_and(group))}: {verdict}" for verdict, group in by_verdict.items()]


def _has_clear_leader(rows: Any) -> bool:
    ranks = [row.rank for row in rows]
    return TIED not in ranks and BEHIND in ranks


def _lost(quality: Quality, line: KnobLine, row: AtCost, is_clear: bool) -> MatchedCell:
    if row.difference is None or row.position is None:
        least, most = (f"{end:.2f}×" for end in (line.at.min(), line.at.max()))
        return MatchedCell(
            comparison=f"measured at {least} only" if least == most else f"measured from {least} to {most}"
        )
    value, low, high = quality.displayed(Estimate(row.difference, *(row.interval or ())))
    digits = decimals(value, low, high)
    interval = " to ".join(number_text(end, digits, signed=True) for end in (low, high) if end is not None)
    tied = _not_enough(row.prompts, "tell it from the first") if row.prompts else "not told apart"
    status = {LEADS: "loses least" if is_clear else "", BEHIND: "loses more", TIED: tied, None: ""}[row.rank]
    text = f"{number_text(value, digits, signed=True)}{quality.unit}"
    return MatchedCell(text, interval, status, row.rank, line.between(row.position))


def _gained(line: KnobLine, row: WithinLoss, is_clear: bool) -> MatchedCell:
    if row.ratio is None or row.position is None:
        return MatchedCell(comparison="loses more at all its values")
    low, high = row.interval or (None, None)
    interval = (
        ""
        if high is None
        else f"{number_text(low, 2)} to {number_text(high, 2)}"
        if low
        else f"at most {number_text(high, 2)}"
    )
    prefix = "≥ " if row.is_open and row.ratio > line.at.max() * (1 - 1e-6) else ""
    status = {LEADS: "fastest" if is_clear else "", BEHIND: "slower", TIED: "not told apart"}[row.rank]
    if not row.is_shown:
        status = _not_enough(row.prompts, "show a gain")
    mark = MIXED_MARK if any(point.mixed for point in line.points) else ""
    return MatchedCell(
        f"{prefix}{number_text(row.ratio, 2)}×{mark}", interval, status, row.rank, line.between(row.position)
    )


def _not_enough(prompts: int | None, what: str) -> str:
    return f"{NOT_ENOUGH}: about {prompts:,} in all would {what}" if prompts else NOT_ENOUGH


def _least(rows: Sequence[AtCost]) -> str:
    leads, tied, behind = _by_rank(rows)
    if not leads:
        return "no rule was measured there."
    if not tied and not behind:
        return f"{leads[0]} alone was measured there."
    if not tied:
        return f"{leads[0]} loses least."
    more = f" {_and(behind)} {'loses' if len(behind) == 1 else 'lose'} more." if behind else ""
    return f"not enough prompts to tell {_and([*leads, *tied])} apart.{more}"


def _fastest(rows: Sequence[WithinLoss]) -> str:
    leads, tied, behind = _by_rank(rows)
    if not leads:
        return "every rule loses more at all its values."
    if not any(row.is_shown for row in rows):
        return "not enough prompts to show that any rule gains there."
    if not tied:
        return f"{leads[0]} is fastest." if behind else f"{leads[0]} alone gets there."
    more = f" {_and(behind)} {'is' if len(behind) == 1 else 'are'} slower." if behind else ""
    return f"not enough prompts to tell which of {_and([*leads, *tied])} is fastest.{more}"


def _by_rank(rows: Sequence[AtCost] | Sequence[WithinLoss]) -> tuple[list[str], list[str], list[str]]:
    first, second, third = ([row.family for row in rows if row.rank == rank] for rank in (LEADS, TIED, BEHIND))
    return first, second, third


def records(
    matched: MatchedComparison, ratios: Sequence[float] = RATIOS, margins: Sequence[float] | None = None
) -> list[dict[str, Any]]:
    """Return a row for each rule at each point, and for each setting beside the curves.

    ``point`` is ``ratio``, ``margin`` or ``beside``. ``at`` is the ratio in times, or the margin in points or
    hundredths of a nat; ``at_unit`` says which. ``difference`` is in ``quality``: accuracy less the target's, from -1
    to 1, or excess NLL in nats a token (``difference_unit``). ``ratio`` is how many times less it costs than the
    reference. The 95 % interval is for the quantity that the point asks for.
    """
    quality = matched.quality
    shared = {
        "quality": quality.key,
        "difference_unit": "share" if quality.is_share else "nats per token",
        "cost": matched.cost.key,
        "reference": matched.reference,
        "target": matched.target,
        "prompts": matched.prompts,
    }
    rows: list[dict[str, Any]] = []

    units = {"ratio": "times", "margin": "points" if quality.is_share else "hundredths of a nat per token"}

    def add(point: str, at: float | None, family: str, **values: Any) -> None:
        empty = dict.fromkeys(("rank", "difference", "ratio", "low", "high", "knob", "prompts_to_decide"))
        rows.append({"point": point, "at": at, "at_unit": units.get(point), "rule": family} | empty | values | shared)

    if matched.compared:
        for ratio in ratios:
            for lost in matched.at_ratio(ratio):
                value, low, high = (
                    (None, None, None)
                    if lost.difference is None
                    else quality.recorded(Estimate(lost.difference, *(lost.interval or ())))
                )
                knob = matched.line(lost.family).between(lost.position) if lost.position else None
                add(
                    "ratio", ratio, lost.family, rank=lost.rank, difference=value, ratio=ratio, low=low, high=high,
                    knob=knob, prompts_to_decide=lost.prompts,
                )  # fmt: skip
        for margin in quality.margins if margins is None else margins:
            for gained in matched.within(margin):
                low, high = gained.interval or (None, None)
                knob = matched.line(gained.family).between(gained.position) if gained.position else None
                add(
                    "margin", margin, gained.family, rank=gained.rank, ratio=gained.ratio, low=low, high=high,
                    knob=knob, prompts_to_decide=gained.prompts,
                )  # fmt: skip
    for line in matched.baseline_lines:
        for point in line.points:
            value, low, high = quality.recorded(point.difference)
            ratio = point.ratio.value if point.ratio else None
            add("beside", None, line.name, difference=value, ratio=ratio, low=low, high=high)
    return rows


def beside_rows(matched: MatchedComparison) -> list[tuple[str, str, str]]:
    """Return the name, cost ratio and quality difference of each setting beside the curves, with intervals."""
    rows = []
    for line in matched.baseline_lines:
        for point in line.points:
            times = "–" if point.ratio is None else f"{_interval(point.ratio, 2, signed=False, unit='×')}"
            difference = matched.quality.displayed(point.difference)
            text = _interval(difference, decimals(*difference), signed=True, unit=matched.quality.unit)
            rows.append((line.name, times + MIXED_MARK * bool(point.mixed), text))
    return rows


def caption(matched: MatchedComparison) -> str:
    """Return sentences that describe what the tables and curves compare."""
    front = f" Not beaten in both: {_and(matched.front)}." if matched.front else ""
    return (
        f"{matched.cost.title} against {matched.reference}, {matched.quality.equal} against {matched.target}, "
        f"on {count(matched.prompts, 'prompt')} that all have. Between two values of a knob stands what answering each "
        "prompt by one of the two, drawn by lot, gives; nothing is told beyond the values that were measured."
        f"{front}{matched.quality.note}"
    )


def absence(matched: MatchedComparison) -> str:
    """Return a sentence that names the missing baselines. Empty if none is missing."""
    if not matched.absent:
        return ""
    return f"Not measured on these prompts: {_and([config.label for config in matched.absent])}."


def _interval(values: Sequence[float | None], digits: int, *, signed: bool, unit: str) -> str:
    value, low, high = values
    text = number_text(value or 0.0, digits, signed) + unit
    return (
        text
        if low is None or high is None
        else f"{text} ({number_text(low, digits, signed)} to {number_text(high, digits, signed)})"
    )


def _and(names: Sequence[str], most: int = 5) -> str:
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
