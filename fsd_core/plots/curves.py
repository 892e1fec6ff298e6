"""Figures of curves: over the load, at matched points, and predicted against measured.

Accuracy, or excess NLL if nothing is scored, over cost: a curve with its band for each rule's knob, baselines as
marks, and the Pareto front.

Predicted against measured: replay's prediction for each rule over its knob, and what decoding then measured.

A small plot for each rule. The line is the prediction, with its interval as a band. The points are measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fsd_core.analysis.cells import PALETTE, estimate, measured, metrics
from fsd_core.analysis.comparability import NOT_RANKED, Quality
from fsd_core.analysis.matching import KnobLine, MatchedComparison, MatchedPoint
from fsd_core.analysis.recommendation import LoadLine, LoadPoint
from fsd_core.metrics import METRICS
from fsd_core.plots.style import (
    MUTED,
    TEMPLATE,
    between,
    error_bar,
    escape,
    faint,
    figure,
    height_for,
    hover,
    mixed_lines,
    name_rows,
    note,
)
from fsd_core.statistics.intervals import Estimate
from fsd_core.statistics.tradeoff import WithinLoss
from fsd_core.texts import MINUS, number_text, upper_first, written

if TYPE_CHECKING:
    from fsd_core.config import DecodingConfig
    from fsd_core.storage.records import RunView


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
    return estimate(point.run, METRICS["tokens_per_second"])


def _throughput_lines(point: LoadPoint) -> list[str]:
    if (measured := _throughput(point)) is None:
        return []
    text, ratio = f"{measured.value:.1f} tokens/s{between(measured)}", point.ratio
    return [text, *([f"{ratio.value:.2f}× the baseline's{between(ratio, 2)}"] if ratio else [])]


def _milliseconds(key: str) -> Callable[[LoadPoint], Estimate | None]:
    def read(point: LoadPoint) -> Estimate | None:
        seconds = metrics(point.run).get(key)
        return None if seconds is None else Estimate(1000 * seconds)

    return read


_per_token, _first_token = _milliseconds("time_per_output_token"), _milliseconds("time_to_first_token")


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


def draw_load_curves(lines: Sequence[LoadLine], what: OverLoad) -> go.Figure:
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
        fig.add_scatter(
            x=[point.load for point in drawn], y=[value.value for value in values], mode="lines+markers",
            name=escape(line.name),
            line={"color": colour, "dash": "dot" if line.is_baseline else "solid"},
            marker={"symbol": rule.symbol, "size": 9, "color": colour},
            error_y=error_bar(values, colour),
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


_DASHES = ("solid", "dash", "dot")
_BANDS = ((3, 0.16), (6, 0.1), (12, 0.06))
"""(maximum number of curves, opacity of a band): stronger bands would hide one another"""
_NEAR = 0.6
"""share of the curves' width that a mark may add on the left; the target alone is often far off"""


def draw_matched_curves(matched: MatchedComparison) -> go.Figure:
    """Draw quality over cost. Up and to the right is better."""
    fig = figure(
        f"{upper_first(matched.quality.equal)} at equal {matched.cost.title.lower()}",
        _axis(matched),
        f"{matched.quality.title} ({matched.quality.in_words})",
        height=height_for(len(matched.lines), 420),
    )
    if not matched.compared:
        return note(fig, "Choose runs of a rule with several values of its knob.")
    x, y = _ranges(matched)
    fig.update_xaxes(range=x).update_yaxes(range=y)
    strength = next((alpha for most, alpha in _BANDS if len(matched.compared) <= most), 0.04)
    unit = matched.quality.sign * matched.quality.scale
    for line in matched.compared:
        fig.add_scatter(
            x=[*line.at, *line.at[::-1]], y=[*(unit * line.high), *(unit * line.low[::-1])], mode="lines",
            fill="toself", fillcolor=faint(line.colour, strength), line={"width": 0}, showlegend=False,
            legendgroup=escape(line.name), hoverinfo="skip",
        )  # fmt: skip
    _front(fig, matched)
    for index, line in enumerate(matched.compared):
        dash = _DASHES[index // 8 % len(_DASHES)]
        fig.add_scatter(
            x=line.at, y=unit * line.value, mode="lines", showlegend=False, legendgroup=escape(line.name),
            line={"color": line.colour, "width": 2, "dash": dash}, hoverinfo="skip",
        )  # fmt: skip
        points = [point for point in line.points if point.ratio]
        _marks(fig, line, points, matched, bars=False)
        fig.add_scatter(
            x=[None], y=[None], mode="lines+markers", name=escape(line.name), legendgroup=escape(line.name),
            line={"color": line.colour, "width": 2, "dash": dash}, marker={"symbol": line.symbol, "size": 8},
        )  # fmt: skip
    for line in matched.baseline_lines:
        near = [point for point in line.points if point.ratio and point.ratio.value >= x[0]]
        if near:
            _marks(fig, line, near, matched, bars=True)
        for point in line.points:
            if point not in near:
                _level(fig, line, point, x, matched.quality)
    return fig


def _axis(matched: MatchedComparison) -> str:
    return f"{matched.cost.fewer.capitalize()} than {matched.reference} (times)" if matched.reference else ""


def _front(fig: go.Figure, matched: MatchedComparison) -> None:
    """Draw the settings that no other beats, joined as steps."""
    front = {p.column: p for line in matched.lines for p in line.points if p.on_front and p.ratio}
    best = sorted(front.values(), key=lambda p: p.ratio.value if p.ratio else 0)
    if len(best) > 1:
        fig.add_scatter(
            x=[p.ratio.value for p in best if p.ratio],
            y=[matched.quality.displayed(p.difference).value for p in best], mode="lines",
            name="Not beaten", line={"dash": "dot", "width": 1.6, "color": MUTED, "shape": "vh"}, hoverinfo="skip",
        )  # fmt: skip


def _marks(
    fig: go.Figure, line: KnobLine, points: Sequence[MatchedPoint], matched: MatchedComparison, *, bars: bool
) -> None:
    differences = [matched.quality.displayed(p.difference) for p in points]
    errors = {"error_y": error_bar(differences, faint(line.colour))} if bars else {}
    fig.add_scatter(
        x=[p.ratio.value for p in points if p.ratio], y=[difference.value for difference in differences],
        mode="markers", name=escape(line.name), legendgroup=escape(line.name), showlegend=bars,
        hoverinfo="text", hovertext=[_matched_curves_hover(p, matched) for p in points],
        marker={"color": line.colour, "symbol": line.symbol, "size": 11 if bars else 8}, **errors,
    )  # fmt: skip


def _level(fig: go.Figure, line: KnobLine, point: MatchedPoint, x: tuple[float, float], quality: Quality) -> None:
    """Draw a level line, labelled with its cost, for a setting whose cost is far off or missing."""
    value = quality.displayed(point.difference).value
    location = "" if point.ratio is None else f" at {point.ratio.value:.2f}×"
    name = f"{line.name}, {_quality_text(value, quality)}{location}"
    fig.add_scatter(
        x=list(x), y=[value, value], mode="lines", name=escape(name),
        line={"color": line.colour, "width": 1.6, "dash": "dash"}, hoverinfo="skip",
    )  # fmt: skip


def _quality_text(value: float, quality: Quality) -> str:
    return f"{number_text(value, quality.digits, signed=True)} {quality.in_words}"


def _matched_curves_hover(point: MatchedPoint, matched: MatchedComparison) -> str:
    difference, quality = matched.quality.displayed(point.difference), matched.quality
    spread = between(difference, quality.digits).replace("-", MINUS)
    lines = [f"{_quality_text(difference.value, quality)}{spread}"]
    if point.ratio:
        lines.append(f"{point.ratio.value:.2f}× {matched.cost.fewer}{between(point.ratio, 2)}")
    lines += ["Not beaten: no chosen setting is both faster and better"] * point.on_front
    return hover(point.name, *lines, *mixed_lines(point.mixed))


def _ranges(matched: MatchedComparison) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the axis ranges: the curves, the marks near them, and the levels that do not flatten them."""
    left, right = (end(float(end(line.at)) for line in matched.compared) for end in (min, max))
    ratios = [p.ratio.value for line in matched.baseline_lines for p in line.points if p.ratio]
    reach = left - _NEAR * (right - left)
    left, right = min([left, *(v for v in ratios if v >= reach)]), max([right, *ratios])
    quality = matched.quality
    low, high = (
        end(
            float(end(quality.sign * quality.scale * side))
            for line in matched.compared
            for side in (line.low, line.high)
        )
        for end in (min, max)
    )
    levels = [quality.displayed(p.difference).value for line in matched.baseline_lines for p in line.points]
    near_levels = [v for v in levels if low - 0.5 * (high - low) <= v <= high + 0.5 * (high - low)]
    padding = 0.04 * (right - left) or 0.05, 0.05 * (high - low) or 0.01 * quality.scale
    low, high = min([low, *near_levels]) - padding[1], max([high, *near_levels]) + padding[1]
    if quality.is_share:
        low, high = max(low, -105), min(high, 105)
    return (left - padding[0], right + padding[0]), (low, high) if quality.sign > 0 else (high, low)


def draw_within(matched: MatchedComparison, points: float) -> go.Figure:
    """Draw how far each rule gets while it loses at most ``points``, the fastest first."""
    rows: list[WithinLoss] = (
        [row for row in matched.within(points) if row.ratio is not None] if matched.compared else []
    )
    fig = figure(
        f"{matched.cost.title} {matched.quality.within(points)}",
        _axis(matched), "", height=max(280, 120 + 46 * len(rows)),
    )  # fmt: skip
    if not matched.quality.is_ranked:
        return note(fig, NOT_RANKED)
    if not rows:
        return note(fig, "No chosen rule was measured there.")
    ends = [row.interval or (row.ratio or 1, row.ratio or 1) for row in rows]
    least, most = min(1.0, *(low or 1.0 for low, _ in ends)), max(1.0, *(high for _, high in ends))
    fig.update_xaxes(range=[least - 0.04 * (most - least), most + 0.06 * (most - least)])
    for i, row in enumerate(rows):
        line, value = matched.line(row.family), row.ratio or np.nan
        low, high = row.interval or (value, value)
        reached = Estimate(value, max(low, least), high)
        knob = line.between(row.position) if row.position else ""
        fig.add_scatter(
            x=[value], y=[i + 0.22], mode="markers", showlegend=False,
            marker={"color": line.colour, "symbol": line.symbol, "size": 10},
            error_x=error_bar([reached], faint(line.colour, 0.7)), hoverinfo="text",
            hovertext=[hover(row.family, f"{value:.2f}×{between(reached, 2)}", f"knob {knob}")],
        )  # fmt: skip
    return name_rows(fig, [row.family for row in rows], (0, 0.44))


METRIC = "target_passes"
TITLE = "Target passes per answer, predicted and measured"
_COLUMNS, _ROW = 2, 165
_EMPTY = "Replay predicted none of these runs. A calibration that chooses its draft lengths by replay keeps them."


class PredictedPoint(NamedTuple):
    """One setting: target passes per answer as predicted and as measured, on the same prompts."""

    name: str
    knob: float
    length: int
    predicted: Estimate
    measured: Estimate


class PredictedRule(NamedTuple):
    """Settings that differ only in knob and draft length, in the order of the knob.

    ``curves``: a line for each draft length. The key ``None`` is one line of settings with different draft lengths.
    """

    title: str
    axis: str
    curves: dict[int | None, list[PredictedPoint]]


Point = tuple["DecodingConfig", Estimate, Estimate]
"""(setting, predicted, measured)"""


def info(runs: Sequence[RunView]) -> list[PredictedRule]:
    """Return the runs that replay had predicted, by rule."""
    points = []
    for run in measured(runs):
        found = estimate(run, METRICS[METRIC])
        if found and run.predicted and run.predicted.get(METRIC) is not None:
            predicted = Estimate(run.predicted[METRIC], *(run.predicted.get(METRIC + end) for end in ("_low", "_high")))
            points.append((run.decoding, predicted, found))
    return by_rule(points)


def by_rule(points: Iterable[Point]) -> list[PredictedRule]:
    """Group the settings that have a knob by rule, in the order of first appearance."""
    groups: dict[tuple[str, str], list[PredictedPoint]] = {}
    for decoding, predicted, actual in points:
        rule, topology = decoding.acceptance, decoding.topology
        if rule.knob is None or rule.knob_value is None or topology is None or not math.isfinite(rule.knob_value):
            continue
        title = " · ".join(part for part in decoding.line.split(" · ") if not part.startswith("γ "))
        axis = str(type(rule).model_fields[rule.knob.field].title or rule.knob.field)
        entry = PredictedPoint(decoding.label, rule.knob_value, topology.length, predicted, actual)
        groups.setdefault((title, axis), []).append(entry)
    return [PredictedRule(*key, _curves(sorted(entry, key=lambda point: point.knob))) for key, entry in groups.items()]


def _curves(points: Sequence[PredictedPoint]) -> dict[int | None, list[PredictedPoint]]:
    if len({point.knob for point in points}) == len(points):  # each knob at one draft length
        return {None: list(points)}
    lengths = sorted({point.length for point in points})
    return {length: [point for point in points if point.length == length] for length in lengths}


def draw_predicted(rules: Sequence[PredictedRule]) -> go.Figure:
    """Draw a small plot for each rule, all over the same scale."""
    if not rules:
        return note(figure(TITLE, "", ""), _EMPTY)
    columns = min(_COLUMNS, len(rules))
    rows = math.ceil(len(rules) / columns)
    height = 110 + _ROW * rows
    fig = make_subplots(
        rows, columns, subplot_titles=[escape(rule.title) for rule in rules],
        vertical_spacing=64 / max(height - 110, 1), horizontal_spacing=0.06,
    )  # fmt: skip
    fig.update_layout(template=TEMPLATE, title_text=escape(TITLE), height=height, hovermode="closest", margin_t=72)
    fig.update_layout(title_y=1 - 18 / height)
    fig.update_annotations(font_size=12, xanchor="center")
    fig.update_yaxes(rangemode="tozero", matches="y")
    lengths = sorted({length for rule in rules for length in rule.curves if length is not None})
    in_legend: set[tuple[int | None, bool]] = set()
    for index, rule in enumerate(rules):
        row, col = index // columns + 1, index % columns + 1
        for length, points in rule.curves.items():
            colour = PALETTE[0 if length is None else lengths.index(length) % len(PALETTE)]
            for trace in _traces(points, colour, "" if length is None else f", γ {length}"):
                key = length, trace.mode == "lines"
                is_displayed = trace.hoverinfo != "skip" and key not in in_legend
                in_legend |= {key} if is_displayed else set()
                fig.add_trace(trace.update(showlegend=is_displayed), row=row, col=col)
        fig.update_xaxes(title_text=escape(rule.axis), title_font_size=11, title_standoff=4, nticks=6, row=row, col=col)
    return fig


def _traces(points: Sequence[PredictedPoint], colour: str, suffix: str) -> list[go.Scatter]:
    knobs = [point.knob for point in points]
    lows, highs = zip(*(point.predicted.ends for point in points), strict=True)
    actual = [point.measured for point in points]
    texts = [_predicted_hover(point) for point in points]
    return [
        go.Scatter(
            x=[*knobs, *reversed(knobs)], y=[*highs, *reversed(lows)], mode="lines", fill="toself", hoverinfo="skip",
            line={"width": 0}, fillcolor=faint(colour, 0.18),
        ),
        go.Scatter(
            x=knobs, y=[point.predicted.value for point in points], mode="lines", name=f"Predicted{suffix}",
            line={"width": 1.8, "color": colour, "dash": "dash"}, hoverinfo="text", hovertext=texts,
        ),
        go.Scatter(
            x=knobs, y=[value.value for value in actual], mode="markers", name=f"Measured{suffix}",
            marker={"color": colour, "size": 8}, error_y=error_bar(actual, colour), hoverinfo="text", hovertext=texts,
        ),
    ]  # fmt: skip


def _predicted_hover(point: PredictedPoint) -> str:
    predicted, actual = (written(*estimate).with_ends(" ({} to {})") for estimate in (point.predicted, point.measured))
    return hover(point.name, f"predicted: {predicted} target passes per answer", f"measured: {actual}")
