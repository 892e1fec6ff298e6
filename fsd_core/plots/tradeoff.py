"""Quality against throughput: what speed costs, with the settings that no other beats.

Quality is accuracy or, if nothing is scored, the share of texts that equal the greedy target's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import plotly.graph_objects as go

from fsd_core.analysis.series import families, interval, measured, metrics, run_names
from fsd_core.conditions import MIXED_MARK
from fsd_core.formatting import count, written
from fsd_core.plots.labels import LABEL_FONT, places
from fsd_core.plots.style import (
    MUTED,
    TEXT,
    between,
    error_bar,
    escape,
    faint,
    figure,
    height_for,
    hover,
    mixed_lines,
    note,
)
from fsd_core.statistics.intervals import pareto_front

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView


class TradeoffPoint(NamedTuple):
    """One run: its speed and quality in percent, each with its interval."""

    run_id: str
    name: str
    threshold: float | None
    speed: float
    speed_low: float
    speed_high: float
    quality: float
    quality_low: float
    quality_high: float
    prompts: int
    on_front: bool
    mixed: tuple[str, ...] = ()
    """conditions that differ within the speed"""


class TradeoffGroup(NamedTuple):
    """The points of one line."""

    name: str
    colour: str
    symbol: str
    points: list[TradeoffPoint]


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
    groups: list[TradeoffGroup]
    front: list[TradeoffPoint]
    left_out: int
    speed: SpeedMeasure = TOKENS


def info(runs: Sequence[RunView]) -> TradeoffInfo:
    """Return the points of the runs that have the quality, and those on the Pareto front.

    The quality is accuracy if any run has one, or if none has a share of same texts. The speed is in tokens a second if
    any run has tokens. What was measured elsewhere is never on the front, for nothing here has verified it.
    """
    with_tokens = [run for run in measured(runs) if _speed(run, TOKENS)[1]]
    unit = TOKENS if with_tokens else ANSWERS
    timed = with_tokens or [run for run in measured(runs) if _speed(run, ANSWERS)[1]]
    has_accuracy = any(metrics(run)["accuracy"] is not None for run in timed)
    measure = (
        ACCURACY_AXIS
        if has_accuracy or not any(_quality(run, SAME_TEXT)[1] is not None for run in timed)
        else SAME_TEXT
    )
    scored = [run for run in timed if _quality(run, measure)[1] is not None]
    names = run_names(scored)
    verified = [run for run in scored if not run.measured_elsewhere]
    best = pareto_front([(_speed(run, unit)[1], _quality(run, measure)[1]) for run in verified])
    front = [_point(verified[index], measure, unit, names[verified[index].id], True) for index in best]
    on_front = {point.run_id for point in front}
    groups = [
        TradeoffGroup(
            f.name,
            f.colour,
            f.symbol,
            [_point(run, measure, unit, names[run.id], run.id in on_front) for run in f.runs],
        )
        for f in families(scored)
    ]
    return TradeoffInfo(measure, groups, front, len(runs) - len(scored), unit)


def _speed(run: RunView, unit: SpeedMeasure) -> tuple[Any, Any, Any]:
    """Return a run's speed between the ends of its interval. Answers a second are the inverse of the time of one."""
    if unit is TOKENS:
        return interval(run, "tokens_per_second")
    fast, answer, slow = interval(run, "seconds_per_answer")
    return (1 / slow, 1 / answer, 1 / fast) if answer else (None, None, None)


def _quality(run: RunView, measure: QualityMeasure) -> tuple[Any, Any, Any]:
    """Return a run's quality between the ends of its interval. The greedy target equals itself, so it has 1."""
    greedy_target = run.decoding.acceptance.kind == "autoregressive" and run.decoding.sampling.temperature == 0
    if measure is SAME_TEXT and greedy_target:
        return 1.0, 1.0, 1.0
    return interval(run, measure.key)


def _point(
    run: RunView, measure: QualityMeasure, unit: SpeedMeasure, name: str, on_front: bool
) -> TradeoffPoint:  # fmt: skip
    low, value, high = (100 * end for end in _quality(run, measure))
    slow, speed, fast = _speed(run, unit)
    ends = speed, slow, fast, value, low, high
    return TradeoffPoint(run.id, name, run.decoding.threshold, *ends, metrics(run)["n"], on_front, run.speed_mixed)


def draw(data: TradeoffInfo, marked: str | None = None) -> go.Figure:
    """Draw quality over throughput. Up and to the right is better. The run whose id is ``marked`` gets a ring."""
    fig = figure(
        f"{data.measure.title} against throughput",
        data.speed.axis,
        data.measure.axis,
        height=height_for(len(data.groups), 400),
    )
    if not data.groups:
        return note(fig, "No run with a measured accuracy is chosen.")
    if len(data.front) > 1:
        fig.add_scatter(
            x=[p.speed for p in data.front], y=[p.quality for p in data.front], mode="lines", name="Pareto front",
            line={"dash": "dot", "width": 1.6, "color": MUTED, "shape": "vh"}, hoverinfo="skip",
        )  # fmt: skip
    spread = _spread([point for group in data.groups for point in group.points])
    fig.update_xaxes(range=spread[0]).update_yaxes(range=spread[1])
    labelled = iter(_labels(data.groups, *spread))
    for group in data.groups:
        speeds, qualities = [p.speed for p in group.points], [p.quality for p in group.points]
        bars, labels = faint(group.colour), [next(labelled) for _ in group.points]
        fig.add_scatter(
            x=speeds, y=qualities, name=escape(group.name), mode="markers+text",
            text=[text for text, _ in labels], textposition=[position for _, position in labels],
            textfont={"size": LABEL_FONT}, cliponaxis=False,
            marker={"color": group.colour, "symbol": group.symbol, "size": 10},
            error_x=error_bar(speeds, [p.speed_low for p in group.points], [p.speed_high for p in group.points], bars),
            error_y=error_bar(
                qualities, [p.quality_low for p in group.points], [p.quality_high for p in group.points], bars
            ),
            hoverinfo="text", hovertext=[_hover(p, data) for p in group.points],
        )  # fmt: skip
    ringed = next((point for group in data.groups for point in group.points if point.run_id == marked), None)
    if ringed is not None:
        fig.add_scatter(
            x=[ringed.speed], y=[ringed.quality], mode="markers", name="The answer", hoverinfo="skip",
            marker={"symbol": "circle-open", "size": 24, "color": TEXT, "line": {"width": 3}},
        )  # fmt: skip
    return fig


Range = tuple[float, float]


def _spread(points: Sequence[TradeoffPoint]) -> tuple[Range, Range]:
    """Return the ranges of both axes: all intervals, with room for labels beside them."""
    return (
        _around([end for p in points for end in (p.speed_low, p.speed_high)]),
        _around([end for p in points for end in (p.quality_low, p.quality_high)]),
    )


def _around(ends: Sequence[float]) -> Range:
    padding = 0.07 * (max(ends) - min(ends)) or 0.05 * abs(max(ends)) or 1.0
    return min(ends) - padding, max(ends) + padding


def _labels(groups: Sequence[TradeoffGroup], x: Range, y: Range) -> list[tuple[str, str]]:
    """Return the thresholds as texts with their positions. A text is empty if its point has no threshold or no room."""
    points = [point for group in groups for point in group.points]
    coordinates = [((p.speed - x[0]) / (x[1] - x[0]), (p.quality - y[0]) / (y[1] - y[0])) for p in points]
    texts = ["" if p.threshold is None else f"T {p.threshold:g}" for p in points]
    return [
        (text if position else "", position or "top right")
        for text, position in zip(texts, places(coordinates, texts), strict=True)
    ]


def _quality_text(p: TradeoffPoint) -> str:
    ends = (None, None) if p.quality_low == p.quality_high else (p.quality_low, p.quality_high)
    text = written(p.quality, *ends, points=True, digits=1)
    return text._replace(value=f"{text.value} %").with_ends(" ({} to {})")


def _hover(p: TradeoffPoint, data: TradeoffInfo) -> str:
    return hover(
        p.name,
        f"{data.measure.title} {_quality_text(p)}, {count(p.prompts, 'prompt')}",
        f"{p.speed:.1f} {data.speed.unit}{MIXED_MARK * bool(p.mixed)}{between(p.speed_low, p.speed_high)}",
        "On the Pareto front: no chosen run is both faster and better" if p.on_front else "",
        *mixed_lines(p.mixed),
    )
