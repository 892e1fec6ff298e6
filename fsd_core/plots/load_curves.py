"""Speed over the load: tokens per second and time per output token of each setting that was measured under several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from fsd_core.analysis.loads import LoadLine, LoadPoint
from fsd_core.analysis.series import PALETTE, interval, metrics
from fsd_core.plots.style import between, error_bar, escape, figure, height_for, hover, mixed_lines, note
from fsd_core.statistics.intervals import Estimate

_NOTHING = "No setting was measured under two loads or more."


class OverLoad(NamedTuple):
    """A quantity that a figure plots over the load."""

    title: str
    axis: str
    read: Callable[[LoadPoint], Estimate | None]
    """in the unit of the axis"""
    lines: Callable[[LoadPoint], Sequence[str]]
    """of a hover text"""
    by_rate: bool = False
    """whether the axis is how many prompts arrive in a second"""


def _throughput(point: LoadPoint) -> Estimate | None:
    low, value, high = interval(point.run, "tokens_per_second")
    return None if value is None else Estimate(value, low, high)


def _throughput_lines(point: LoadPoint) -> list[str]:
    if (measured := _throughput(point)) is None:
        return []
    value, low, high = measured
    text = f"{value:.1f} tokens/s" + (between(low, high) if low is not None and high is not None else "")
    ratio = point.ratio
    if ratio is None:
        return [text]
    ends = between(ratio.low, ratio.high, 2) if ratio.low is not None and ratio.high is not None else ""
    return [text, f"{ratio.value:.2f}× the baseline's{ends}"]


def _per_token(point: LoadPoint) -> Estimate | None:
    seconds = metrics(point.run).get("time_per_output_token")
    return None if seconds is None else Estimate(1000 * seconds)


def _first_token(point: LoadPoint) -> Estimate | None:
    seconds = metrics(point.run).get("time_to_first_token")
    return None if seconds is None else Estimate(1000 * seconds)


def _first_token_lines(point: LoadPoint) -> list[str]:
    measured, held = _first_token(point), (metrics(point.run).get("engine") or {}).get("held", 0)
    return [] if measured is None else [f"median {measured.value:.3g} ms", f"{held} prompts were held back on arrival"]


def _per_token_lines(point: LoadPoint) -> list[str]:
    named = {"median": "", "90 % below": "_p90", "99 % below": "_p99"}
    values = {title: metrics(point.run).get(f"time_per_output_token{end}") for title, end in named.items()}
    return [f"{title} {1000 * value:.3g} ms" for title, value in values.items() if value is not None]


SPEEDS_BY_LOAD = {
    "throughput_by_load": OverLoad("Throughput over the load", "Tokens per second", _throughput, _throughput_lines),
    "time_per_token_by_load": OverLoad(
        "Time per output token over the load", "Median, ms", _per_token, _per_token_lines
    ),
    "time_to_first_token_by_rate": OverLoad(
        "Time to first token over the request rate", "Median, ms", _first_token, _first_token_lines, by_rate=True
    ),
    "time_per_token_by_rate": OverLoad(
        "Time per output token over the request rate", "Median, ms", _per_token, _per_token_lines, by_rate=True
    ),
}
"""figures by name"""


def draw(lines: Sequence[LoadLine], what: OverLoad) -> go.Figure:
    """Draw one figure, of the lines whose load is of its kind.

    The load is how many prompts are asked at once, the batch size of our own loop, or how many arrive in a second.
    """
    lines = [line for line in lines if line.by_rate == what.by_rate]
    over = "Prompts a second (log)" if what.by_rate else "Prompts at once (log)"
    fig = figure(what.title, over, what.axis, height=height_for(len(lines)))
    points = {line.name: [p for p in line.points if what.read(p)] for line in lines}
    if not any(points.values()):
        return note(fig, _NOTHING)
    used: set[str] = set()
    free = iter(PALETTE * (len(lines) // len(PALETTE) + 1))
    for line in lines:
        if not (drawn := points[line.name]):
            continue
        rule = line.first.decoding.acceptance
        colour = rule.colour if rule.colour and rule.colour not in used else next(free)
        used.add(colour)
        values = [value for point in drawn if (value := what.read(point))]
        heights = [value for value, *_ in values]
        ends = [(value if low is None else low, value if high is None else high) for value, low, high in values]
        fig.add_scatter(
            x=[point.load for point in drawn], y=heights, mode="lines+markers", name=escape(line.name),
            line={"color": colour, "dash": "dot" if line.is_baseline else "solid"},
            marker={"symbol": rule.symbol, "size": 9, "color": colour},
            error_y=error_bar(heights, [low for low, _ in ends], [high for _, high in ends], colour),
            hoverinfo="text",
            hovertext=[
                hover(
                    line.name, point.run.config.load_text, *what.lines(point), *mixed_lines(point.run.speed_mixed),
                )
                for point in drawn
            ],
        )  # fmt: skip
    loads = sorted({point.load for drawn in points.values() for point in drawn})
    fig.update_xaxes(type="log", tickvals=loads, ticktext=[f"{load:g}" for load in loads])
    return fig.update_yaxes(rangemode="tozero")
