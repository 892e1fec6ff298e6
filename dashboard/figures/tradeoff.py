"""Accuracy against throughput: what speed costs, with the settings that nothing else beats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go

from dashboard.figures.series import families, measured, metrics, run_names
from dashboard.figures.style import MUTED, error_bar, escape, faint, figure, hover, note
from fsd_core.benchmarks.statistics import pareto_front

if TYPE_CHECKING:
    from fsd_core.tracking.records import RunView


_BESIDE = ("top right", "bottom left")  # neighbours on a line are labelled on different sides


class Point(NamedTuple):
    """One run: tokens per second and accuracy in percent, each with its interval."""

    run_id: str
    name: str
    threshold: float | None
    speed: float
    speed_low: float
    speed_high: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    prompts: int
    on_front: bool


class Group(NamedTuple):
    """The points of one line."""

    name: str
    colour: str
    symbol: str
    points: list[Point]


class TradeoffInfo(NamedTuple):
    """What the figure shows; ``left_out`` counts runs without a measured accuracy."""

    groups: list[Group]
    front: list[Point]
    left_out: int


def info(runs: Sequence[RunView]) -> TradeoffInfo:
    """The points of the runs that have an accuracy, and which of them lie on the Pareto front."""
    scored = [
        run for run in measured(runs) if metrics(run)["accuracy"] is not None and metrics(run)["tokens_per_second"]
    ]
    names = run_names(scored)
    best = pareto_front([(metrics(run)["tokens_per_second"], metrics(run)["accuracy"]) for run in scored])
    front = [_point(scored[index], names[scored[index].id], True) for index in best]
    on_front = {point.run_id for point in front}
    groups = [
        Group(f.name, f.colour, f.symbol, [_point(run, names[run.id], run.id in on_front) for run in f.runs])
        for f in families(scored)
    ]
    return TradeoffInfo(groups, front, len(runs) - len(scored))


def _point(run: RunView, name: str, on_front: bool) -> Point:
    m = metrics(run)
    return Point(
        run.id, name, run.decoding.threshold,
        m["tokens_per_second"], m["tokens_per_second_low"], m["tokens_per_second_high"],
        100 * m["accuracy"], 100 * m["accuracy_low"], 100 * m["accuracy_high"],
        m["n"], on_front,
    )  # fmt: skip


def draw(data: TradeoffInfo) -> go.Figure:
    """Up and to the right is better."""
    drawn = figure(
        "Accuracy against throughput", "Throughput (tokens per second)", "Accuracy (% of prompts)", height=440
    )
    if not data.groups:
        return note(drawn, "No run with a measured accuracy is chosen.")
    if len(data.front) > 1:
        drawn.add_scatter(
            x=[p.speed for p in data.front], y=[p.accuracy for p in data.front], mode="lines", name="Pareto front",
            line={"dash": "dot", "width": 1.6, "color": MUTED, "shape": "vh"}, hoverinfo="skip",
        )  # fmt: skip
    labelled = sum(len(group.points) for group in data.groups) <= 10
    for group in data.groups:
        speeds, accuracies = [p.speed for p in group.points], [p.accuracy for p in group.points]
        bars = faint(group.colour)
        drawn.add_scatter(
            x=speeds, y=accuracies, name=escape(group.name), mode="markers+text",
            text=[f"T {p.threshold:g}" if labelled and p.threshold is not None else "" for p in group.points],
            textposition=[_BESIDE[index % 2] for index in range(len(group.points))], textfont={"size": 11},
            marker={"color": group.colour, "symbol": group.symbol, "size": 10},
            error_x=error_bar(speeds, [p.speed_low for p in group.points], [p.speed_high for p in group.points], bars),
            error_y=error_bar(
                accuracies, [p.accuracy_low for p in group.points], [p.accuracy_high for p in group.points], bars
            ),
            hoverinfo="text", hovertext=[_hover(p) for p in group.points],
        )  # fmt: skip
    return drawn


def _hover(p: Point) -> str:
    return hover(
        p.name,
        f"Accuracy {p.accuracy:.1f} % ({p.accuracy_low:.1f} to {p.accuracy_high:.1f}), {p.prompts} prompts",
        f"{p.speed:.1f} tokens/s ({p.speed_low:.1f} to {p.speed_high:.1f})",
        "On the Pareto front: no chosen run is both faster and more accurate" if p.on_front else "",
    )
