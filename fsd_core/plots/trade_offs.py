"""Figures of runs side by side: quality and speed, over threshold and draft length, and all of them by name.

Quality against throughput: what speed costs, with the settings that no other beats.

Quality is accuracy or, if nothing is scored, the share of texts that equal the greedy target's own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go

from fsd_core.analysis import matching
from fsd_core.analysis.cells import (
    PALETTE,
    estimate,
    families,
    measured,
    metrics,
    names_beside,
    ratio_mixed,
    run_names,
    speedup,
    throughput_ratio,
)
from fsd_core.analysis.recommendation import load_lines
from fsd_core.errors import NotGiven, UnknownChoice
from fsd_core.metrics import METRICS, MIXED_MARK
from fsd_core.plots import acceptance, curves
from fsd_core.plots.style import (
    MUTED,
    TEXT,
    Line,
    between,
    error_bar,
    escape,
    faint,
    figure,
    height_for,
    hover,
    label,
    mixed_lines,
    note,
    places,
)
from fsd_core.statistics.intervals import Estimate, pareto_front
from fsd_core.texts import count, decimals, number_text, written

if TYPE_CHECKING:
    from fsd_core.config import DecodingConfig
    from fsd_core.storage.records import Prompts, RunView


class TradeoffPoint(NamedTuple):
    """One run: its speed, and its quality in percent."""

    run: RunView
    name: str
    speed: Estimate
    quality: Estimate
    on_front: bool = False

    @property
    def label(self) -> str:
        """The name, of a rule with a knob without the rule's title, such as ``js ≤ 0.1 · γ 14``."""
        decoding = self.run.decoding
        return self.name if decoding.threshold is None else self.name.replace(f"{decoding.acceptance.title} · ", "", 1)


class QualityMeasure(NamedTuple):
    """A metric of text quality."""

    key: str
    title: str
    axis: str


ACCURACY_AXIS = QualityMeasure("accuracy", "Accuracy", "Accuracy (% of prompts)")
SAME_TEXT = QualityMeasure("same_text", "Same text", "Same text as the greedy target (% of prompts)")


class SpeedMeasure(NamedTuple):
    """A measure of speed: its unit and the title of its axis."""

    unit: str
    axis: str


TOKENS = SpeedMeasure("tokens/s", "Throughput (tokens per second)")
ANSWERS = SpeedMeasure("answers/s", "Throughput (answers per second)")
"""for a measured series without tokens, such as images"""


class TradeoffInfo(NamedTuple):
    """Data of the figure. ``measure`` is its quality. ``left_out`` counts runs that lack it, or the speed."""

    measure: QualityMeasure
    groups: list[Line[TradeoffPoint]]
    front: list[TradeoffPoint]
    left_out: int
    speed: SpeedMeasure = TOKENS


def tradeoff_info(runs: Sequence[RunView]) -> TradeoffInfo:
    """Return the points of the runs that have the quality, and those on the Pareto front.

    The quality is accuracy if any run has one, or if none has a share of same texts. The speed is in tokens a second if
    any run has tokens. What was measured elsewhere is never on the front, for nothing here has verified it.
    """
    with_tokens = [run for run in measured(runs) if _speed(run, TOKENS)]
    unit = TOKENS if with_tokens else ANSWERS
    timed = with_tokens or [run for run in measured(runs) if _speed(run, ANSWERS)]
    has_accuracy = any(metrics(run)["accuracy"] is not None for run in timed)
    measure = SAME_TEXT if not has_accuracy and any(_quality(run, SAME_TEXT) for run in timed) else ACCURACY_AXIS
    names = run_names(scored := [run for run in timed if _quality(run, measure)])
    points = {
        run.id: TradeoffPoint(run, names[run.id], speed, quality)
        for run in scored
        if (speed := _speed(run, unit)) and (quality := _quality(run, measure))
    }
    verified = [point for point in points.values() if not point.run.measured_elsewhere]
    best = pareto_front([(point.speed.value, point.quality.value) for point in verified])
    front = [verified[i]._replace(on_front=True) for i in best]
    points |= {point.run.id: point for point in front}
    groups = [Line(f.name, f.colour, f.symbol, [points[run.id] for run in f.runs]) for f in families(scored)]
    return TradeoffInfo(measure, groups, front, len(runs) - len(scored), unit)


def _speed(run: RunView, unit: SpeedMeasure) -> Estimate | None:
    """Return a run's speed; ``None`` without one. Answers a second are the inverse of the time of one."""
    found = estimate(run, METRICS["tokens_per_second" if unit is TOKENS else "seconds_per_answer"])
    if found is None or not found.value:
        return None
    fast, slow = found.ends
    return found if unit is TOKENS else Estimate(1 / found.value, 1 / slow, 1 / fast)


def _quality(run: RunView, measure: QualityMeasure) -> Estimate | None:
    """Return a run's quality in percent. The greedy target equals itself, so it has 100."""
    greedy_target = run.decoding.acceptance.kind == "autoregressive" and run.decoding.sampling.temperature == 0
    return Estimate(100.0) if measure is SAME_TEXT and greedy_target else estimate(run, METRICS[measure.key])


def draw_tradeoff(data: TradeoffInfo, marked: str | None = None) -> go.Figure:
    """Draw quality over throughput. Up and to the right is better. The run whose id is ``marked`` gets a ring."""
    points = [point for group in data.groups for point in group.points]
    first = sorted(points, key=lambda p: (p.run.id != marked, not p.on_front))
    spread = _spread(points) if points else ((0.0, 1.0), (0.0, 1.0))
    (left, right), (low, high) = spread
    shares = [((p.speed.value - left) / (right - left), (p.quality.value - low) / (high - low)) for p in first]
    found = places(shares, [p.label for p in first])
    placed = {p.run.id: place for p, place in zip(first, found, strict=True) if place}
    same = Counter(p.label for p in points)
    told = {p.run.id for p in first if same[p.label] == 1 and p.run.id in placed and not placed[p.run.id].wide}
    legend = [group.name for group in data.groups if told.isdisjoint(p.run.id for p in group.points)]
    fig = figure(
        f"{data.measure.title} against throughput",
        data.speed.axis,
        data.measure.axis,
        height=height_for(len(legend) + 2, 400),
    )
    if not data.groups:
        return note(fig, "No run with a measured accuracy is chosen.")
    if len(data.front) > 1:
        fig.add_scatter(
            x=[p.speed.value for p in data.front], y=[p.quality.value for p in data.front], mode="lines",
            name="Pareto front", line={"dash": "dot", "width": 1.6, "color": MUTED, "shape": "vh"}, hoverinfo="skip",
        )  # fmt: skip
    fig.update_xaxes(range=spread[0]).update_yaxes(range=spread[1])
    for group in data.groups:
        speeds, qualities = [p.speed for p in group.points], [p.quality for p in group.points]
        bars = faint(group.colour)
        fig.add_scatter(
            x=[speed.value for speed in speeds], y=[quality.value for quality in qualities],
            name=escape(group.name), mode="markers", showlegend=group.name in legend, cliponaxis=False,
            marker={"color": group.colour, "symbol": group.symbol, "size": 10},
            error_x=error_bar(speeds, bars), error_y=error_bar(qualities, bars),
            hoverinfo="text", hovertext=[_tradeoff_hover(p, data) for p in group.points],
        )  # fmt: skip
    for point in points:
        if place := placed.get(point.run.id):
            label(fig, point.speed.value, point.quality.value, escape(point.label), place)
    ringed = next((point for point in points if point.run.id == marked), None)
    if ringed is not None:
        fig.add_scatter(
            x=[ringed.speed.value], y=[ringed.quality.value], mode="markers", name="The answer", hoverinfo="skip",
            marker={"symbol": "circle-open", "size": 24, "color": TEXT, "line": {"width": 3}},
        )  # fmt: skip
    return fig


Range = tuple[float, float]


def _spread(points: Sequence[TradeoffPoint]) -> tuple[Range, Range]:
    """Return the ranges of both axes: all intervals, with room for labels beside them. No share passes 100 %."""
    speeds = [end for p in points for end in p.speed.ends]
    least, most = _around([end for p in points for end in p.quality.ends])
    return _around(speeds), (least, min(most, 100.0))


def _around(ends: Sequence[float]) -> Range:
    padding = 0.07 * (max(ends) - min(ends)) or 0.05 * abs(max(ends)) or 1.0
    return min(ends) - padding, max(ends) + padding


def _with_ends(estimate: Estimate, digits: int = 1, unit: str = " %") -> str:
    """Return a value in the unit of its axis, with its interval if that has a width."""
    low, high = estimate.ends
    text = written(estimate.value, *((low, high) if low != high else ()), points=bool(unit), digits=digits)
    return text._replace(value=text.value + unit).with_ends(" ({} to {})")


def _tradeoff_hover(p: TradeoffPoint, data: TradeoffInfo) -> str:
    return hover(
        p.name,
        f"{data.measure.title} {_with_ends(p.quality)}, {count(metrics(p.run)['n'], 'prompt')}",
        f"{p.speed.value:.1f} {data.speed.unit}{MIXED_MARK * bool(p.run.speed_mixed)}{between(p.speed)}",
        "On the Pareto front: no chosen run is both faster and better" if p.on_front else "",
        *mixed_lines(p.run.speed_mixed),
    )


# Below the middle of its slot, where the label's line ends. The mark extends a little beyond the bar.
BAR = (0.06, 0.48)
MARK_PLACE = (0.0, 0.54)
ROW, LINE = 42, 20
"""pixels of a bar with its label, and of one more line"""
_LONGEST = 44
"""maximum characters of a label on one line of a phone"""


class Bar(NamedTuple):
    """One run: its speed-up over the baseline."""

    run: RunView
    name: str
    colour: str
    speedup: Estimate
    mixed: tuple[str, ...] = ()
    """conditions that differ within the speed-up"""

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return metrics(self.run)["tokens_per_second"]


class ThroughputInfo(NamedTuple):
    """Data of the figure. ``baseline`` is the name of the run that all others are divided by."""

    baseline: str | None
    bars: list[Bar]


def throughput_info(runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts) -> ThroughputInfo:
    """Return one bar per run that has a throughput and shares prompts with the baseline, in the given order. Empty if
    the baseline has none."""
    timed = [run for run in measured(runs) if metrics(run)["tokens_per_second"]]
    if baseline is None or not baseline.metrics or not metrics(baseline)["tokens_per_second"]:
        return ThroughputInfo(None, [])
    names = names_beside(timed, baseline)
    colours = {run.id: family.colour for family in families(timed) for run in family.runs}
    bars = [
        Bar(run, names[run.id], colours[run.id], ratio, ratio_mixed(run, baseline))
        for run in timed
        if (ratio := throughput_ratio(run, baseline, prompts)) is not None
    ]
    return ThroughputInfo(names[baseline.id], bars)


def draw_throughput(data: ThroughputInfo) -> go.Figure:
    """Draw bars from top to bottom in the order of the table. Right of the mark at 1 is faster."""
    labels = [_label(bar, data.baseline or "") for bar in data.bars]
    is_long = max((len(name) + len(figures) for name, figures in labels), default=0) > _LONGEST
    row, separator = (ROW + LINE, "<br>") if is_long else (ROW, " · ")
    fig = figure(
        "Throughput relative to the baseline",
        "Tokens per second, × the baseline's",
        "",
        height=max(300, 110 + row * len(data.bars)),
    )
    if not data.bars:
        return note(fig, "The baseline has no measured throughput.")
    speedups = [bar.speedup for bar in data.bars]
    fig.add_bar(
        orientation="h", x=[ratio.value for ratio in speedups], y=[escape(bar.name) for bar in data.bars],
        width=BAR[1] - BAR[0], offset=BAR[0],
        marker={"color": [bar.colour for bar in data.bars], "opacity": 0.85}, showlegend=False,
        error_x=error_bar(speedups, MUTED),
        hoverinfo="text", hovertext=[_throughput_hover(bar, data.baseline or "") for bar in data.bars],
    )  # fmt: skip
    # Names are above their bars: beside them they would take half of a narrow screen.
    fig.add_scatter(
        x=[0] * len(data.bars), y=[escape(bar.name) for bar in data.bars], mode="text", textposition="top right",
        text=[separator.join(label) for label in labels],
        showlegend=False, hoverinfo="skip",
    )  # fmt: skip
    # So no line may run from top to bottom: the 1 is marked at each bar, and labels replace a grid.
    for index in range(len(data.bars)):
        fig.add_shape(
            type="line", x0=1, x1=1, y0=index + MARK_PLACE[0], y1=index + MARK_PLACE[1],
            line={"dash": "dot", "width": 2, "color": TEXT},
        )  # fmt: skip
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="", showticklabels=False, title_text=None)
    return fig.update_xaxes(rangemode="tozero", showgrid=False)


def _label(bar: Bar, baseline: str) -> tuple[str, str]:
    """Return the bar's name, and its figures."""
    digits = max(1, decimals(*bar.speedup))
    mark, ratio_mark = MIXED_MARK * bool(bar.run.speed_mixed), MIXED_MARK * bool(bar.mixed)
    ratio = "baseline" if bar.name == baseline else f"{number_text(bar.speedup.value, digits)}×{ratio_mark}"
    return escape(bar.name), f"{bar.speed:,.0f} tokens/s{mark} · {ratio}"


def _throughput_hover(bar: Bar, baseline: str) -> str:
    speed = f"{bar.speed:.1f} tokens/s{MIXED_MARK * bool(bar.run.speed_mixed)}"
    if bar.name == baseline:
        return hover(bar.name, speed, "The baseline", *mixed_lines(bar.run.speed_mixed))
    ratio = f"{bar.speedup.value:.2f}×{MIXED_MARK * bool(bar.mixed)} the baseline{between(bar.speedup, digits=2)}"
    return hover(bar.name, speed, ratio, *mixed_lines(bar.mixed))


class Mark(NamedTuple):
    """One run at its place along a figure, with its value in the unit of the axis."""

    name: str
    at: float | None
    value: Estimate
    mixed: tuple[str, ...] = ()


def means(line: Line[Mark]) -> list[tuple[float, float]]:
    """Return each place of a line with the mean over its runs: the line passes there if several seeds were run."""
    places: dict[float, list[float]] = {}
    for mark in line.points:
        if mark.at is not None:
            places.setdefault(mark.at, []).append(mark.value.value)
    return [(at, sum(values) / len(values)) for at, values in sorted(places.items())]


def _draw_means(fig: go.Figure, line: Line[Mark], texts: Sequence[str]) -> None:
    """Draw the marks of a line with their intervals, and a line through their means."""
    group, values, drawn = escape(line.name), [mark.value for mark in line.points], means(line)
    fig.add_scatter(
        x=[at for at, _ in drawn], y=[mean for _, mean in drawn], mode="lines", legendgroup=group,
        showlegend=False, line={"width": 1.8, "color": line.colour}, hoverinfo="skip",
    )  # fmt: skip
    fig.add_scatter(
        x=[mark.at for mark in line.points], y=[value.value for value in values], mode="markers", name=group,
        legendgroup=group, marker={"color": line.colour, "symbol": line.symbol, "size": 9},
        error_y=error_bar(values, line.colour), hoverinfo="text", hovertext=texts,
    )  # fmt: skip


class ThresholdMeasure(NamedTuple):
    """A metric that is plotted against the threshold."""

    key: str
    title: str
    axis: str
    unit: str = ""


ACCEPTANCE_RATE = ThresholdMeasure("acceptance_rate", "Acceptance rate against threshold", "Acceptance rate (%)", " %")
ACCEPTANCE_LENGTH = ThresholdMeasure(
    "mean_acceptance_length", "Mean acceptance length against threshold", "Tokens per target forward"
)


class ThresholdInfo(NamedTuple):
    """Data of the figure. ``lines`` have finite thresholds. ``references`` have none (exact SD), or an infinite one
    (the draft alone)."""

    measure: ThresholdMeasure
    lines: list[Line[Mark]]
    references: list[Line[Mark]]


def threshold_info(runs: Sequence[RunView], measure: ThresholdMeasure) -> ThresholdInfo:
    """Return the values of the runs that speculate. Baselines draft nothing, so they have none."""
    found = {run.id: estimate(run, METRICS[measure.key]) for run in measured(runs) if run.decoding.drafter is not None}
    drafted = [run for run in measured(runs) if found.get(run.id)]
    names = run_names(drafted)
    lines: list[Line[Mark]] = []
    references: list[Line[Mark]] = []
    for family in families(drafted):
        marks = [Mark(names[run.id], run.decoding.threshold, value) for run in family.runs if (value := found[run.id])]
        if tuned := [mark for mark in marks if mark.at is not None and math.isfinite(mark.at)]:
            lines.append(Line(family.name, family.colour, family.symbol, tuned))
        off = ", T off" if family.runs[0].decoding.divergence else ""
        for threshold, suffix in ((None, off), (math.inf, ", T = ∞")):
            if level := [mark for mark in marks if mark.at == threshold]:
                references.append(Line(family.name + suffix, family.colour, family.symbol, level))
    return ThresholdInfo(measure, lines, references)


def draw_threshold(data: ThresholdInfo) -> go.Figure:
    """Draw points with intervals, a line through the mean of each threshold, and a level line for runs without one."""
    measure = data.measure
    fig = figure(
        measure.title,
        "Threshold T (in the units of each divergence)",
        measure.axis,
        height=height_for(len(data.lines) + len(data.references)),
    )
    if not data.lines:
        return note(fig, "Choose runs with a threshold to see what it changes.")

    def text(mark: Mark) -> str:
        return hover(mark.name, _with_ends(mark.value, 1 if measure.unit else 2, measure.unit))

    thresholds = [at for line in data.lines for at, _ in means(line)]
    margin = 0.04 * (max(thresholds) - min(thresholds)) or 0.05
    ends = [min(thresholds) - margin, max(thresholds) + margin]
    for line in data.references:
        for index, mark in enumerate(line.points):
            fig.add_scatter(
                x=ends, y=[mark.value.value] * 2, mode="lines", name=escape(line.name), legendgroup=escape(line.name),
                showlegend=index == 0, line={"dash": "dash", "width": 1.6, "color": line.colour},
                hoverinfo="text", hovertext=[text(mark)] * 2,
            )  # fmt: skip
    for line in data.lines:
        _draw_means(fig, line, [text(mark) for mark in line.points])
    return fig.update_xaxes(range=ends)


class LengthsInfo(NamedTuple):
    """Data of the figure: times as fast as the baseline, over the draft length. ``baseline`` is its name."""

    baseline: str | None
    curves: list[Line[Mark]]
    """settings that differ only in the draft length and the seed, by length"""


def draft_lengths_info(runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts) -> LengthsInfo:
    """Return the settings that were run with several draft lengths on prompts of the baseline."""
    if baseline is None or not baseline.metrics:
        return LengthsInfo(None, [])
    names = names_beside(measured(runs), baseline)
    groups: dict[tuple, list[Mark]] = {}
    rules: dict[tuple, DecodingConfig] = {}
    for run in measured(runs):
        topology, speed = run.decoding.topology, speedup(run, baseline, prompts)
        if topology is None or speed is None or run.pair != baseline.pair:
            continue
        key = run.task, run.decoding.model_copy(update={"topology": topology.model_copy(update={"length": 1})})
        rules.setdefault(key, run.decoding)
        groups.setdefault(key, []).append(Mark(names[run.id], topology.length, speed, ratio_mixed(run, baseline)))
    curves = []
    for key, marks in groups.items():
        if len({mark.at for mark in marks}) > 1:
            rule, label = rules[key].acceptance, rules[key].label
            name = " · ".join(part for part in label.split(" · ") if not part.startswith("γ "))
            colour = PALETTE[len(curves) % len(PALETTE)]
            curves.append(Line(name, colour, rule.symbol, sorted(marks, key=lambda mark: mark.at or 0)))
    return LengthsInfo(names[baseline.id], curves)


def draw_draft_lengths(data: LengthsInfo) -> go.Figure:
    """Draw a line for each setting, through the mean of its seeds."""
    fig = figure(
        "Speed over the draft length", "Draft length γ (tokens)", "× as fast as the baseline, by time per answer",
        height=height_for(len(data.curves)),
    )  # fmt: skip
    if not data.curves:
        return note(fig, "Choose runs that differ in their draft length.")

    def text(mark: Mark) -> str:
        speed = f"{mark.value.value:.2f}×{MIXED_MARK * bool(mark.mixed)} as fast as {data.baseline}"
        return hover(mark.name, f"{speed}{between(mark.value, digits=2)}, by time per answer", *mixed_lines(mark.mixed))

    for curve in data.curves:
        _draw_means(fig, curve, [text(mark) for mark in curve.points])
    return fig


Draw = Callable[[Sequence["RunView"], "RunView | None", "Prompts"], go.Figure]
"""called with the runs, the baseline, and the counts of their prompts"""

COMPARISON_FIGURES: Mapping[str, Draw] = {
    "tradeoff": lambda runs, *_: draw_tradeoff(tradeoff_info(runs)),
    "acceptance_rate": lambda runs, *_: draw_threshold(threshold_info(runs, ACCEPTANCE_RATE)),
    "acceptance_length": lambda runs, *_: draw_threshold(threshold_info(runs, ACCEPTANCE_LENGTH)),
    "answers": lambda runs, baseline, prompts: acceptance.draw_answers(
        acceptance.answers_info(runs, baseline, prompts)
    ),
    "throughput": lambda runs, baseline, prompts: draw_throughput(throughput_info(runs, baseline, prompts)),
    "positions": lambda runs, *_: acceptance.draw_positions(acceptance.positions_info(runs)),
    "requests": lambda runs, *_: acceptance.draw_requests(acceptance.requests_info(runs)),
}
"""figures of all runs together"""
FIRST_FIGURE = "tradeoff"
"""the one that a comparison answers with"""

_MARGIN = 2.0
"""default points for the figure at equal accuracy"""
MATCHED: Mapping[str, Draw] = {
    "matched": lambda runs, baseline, prompts: curves.draw_matched_curves(matching.match(runs, baseline, prompts)),
    "equal_accuracy": lambda runs, baseline, prompts: curves.draw_within(
        matching.match(runs, baseline, prompts), _MARGIN
    ),
    "draft_lengths": lambda runs, baseline, prompts: draw_draft_lengths(draft_lengths_info(runs, baseline, prompts)),
    "predicted": lambda runs, *_: curves.draw_predicted(curves.info(runs)),
}
"""figures of rules at matched points, speed over the draft length, and predictions by replay"""

OVER_LOAD: Mapping[str, Draw] = {
    name: lambda runs, baseline, prompts, what=what: curves.draw_load_curves(load_lines(runs, baseline, prompts), what)
    for name, what in curves.SPEEDS_BY_LOAD.items()
}
"""figures of speed over the load"""

DIVERGENCE_FIGURE = "divergences"
"""the histogram of one run: the loosest of those that are given"""
FIGURE_NAMES = (*COMPARISON_FIGURES, *MATCHED, *OVER_LOAD, DIVERGENCE_FIGURE)


def named_figure(
    name: str, runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts, *,
    cost: str = "target_passes", margin: float = _MARGIN, marked: str | None = None,
) -> go.Figure:  # fmt: skip
    """Return the figure of this name, one of ``FIGURE_NAMES``.

    ``cost`` (a key of ``matching.COSTS``) and ``margin`` (points) are those of the figures at matched points, and
    ``marked`` is the id of the run that the first figure marks. Raises ``InvalidSetting`` for an unknown name,
    ``UnknownName`` for an unknown cost.
    """
    if name == FIRST_FIGURE:
        return draw_tradeoff(tradeoff_info(runs), marked)
    if name == DIVERGENCE_FIGURE:
        run = acceptance.telling(acceptance.runs_with_judged_tokens(runs)) or next(iter(runs), None)
        if run is None:
            raise NotGiven("The divergences of no run were asked for: name a run.")
        return acceptance.draw_divergence(acceptance.divergence_info(run))
    if name == "matched":
        return curves.draw_matched_curves(matching.match(runs, baseline, prompts, cost))
    if name == "equal_accuracy":
        return curves.draw_within(matching.match(runs, baseline, prompts, cost), margin)
    if (draw := {**COMPARISON_FIGURES, **MATCHED, **OVER_LOAD}.get(name)) is None:
        raise UnknownChoice(f"There is no figure {name[:40]!r}: expected one of {', '.join(FIGURE_NAMES)}.")
    return draw(runs, baseline, prompts)


def comparison_figures(runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts) -> list[go.Figure]:
    """Return the figures of all runs together: accuracy against throughput, acceptance rate and length against
    threshold, answers, throughput, acceptance by position and over requests."""
    return [draw(runs, baseline, prompts) for draw in COMPARISON_FIGURES.values()]
