"""Predicted against measured: replay's prediction for each rule over its knob, and what decoding then measured.

A small plot for each rule. The line is the prediction, with its interval as a band. The points are measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fsd_core.analysis.series import PALETTE, interval, measured
from fsd_core.formatting import written
from fsd_core.plots.style import TEMPLATE, error_bar, escape, faint, figure, hover, note
from fsd_core.statistics.intervals import Estimate

if TYPE_CHECKING:
    from fsd_core.config import DecodingConfig
    from fsd_core.storage.records import RunView

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
        if run.predicted and run.predicted.get(METRIC) is not None:
            low, value, high = interval(run, METRIC)
            predicted = Estimate(run.predicted[METRIC], *(run.predicted.get(METRIC + end) for end in ("_low", "_high")))
            points.append((run.decoding, predicted, Estimate(value, low, high)))
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


def draw(rules: Sequence[PredictedRule]) -> go.Figure:
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
    lows, highs = _ends([point.predicted for point in points])
    actual_lows, actual_highs = _ends([point.measured for point in points])
    actual = [point.measured.value for point in points]
    texts = [_hover(point) for point in points]
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
            x=knobs, y=actual, mode="markers", name=f"Measured{suffix}", marker={"color": colour, "size": 8},
            error_y=error_bar(actual, actual_lows, actual_highs, colour), hoverinfo="text", hovertext=texts,
        ),
    ]  # fmt: skip


def _ends(estimates: Sequence[Estimate]) -> tuple[list[float], list[float]]:
    """Return the low and high ends; the value if an end is unknown."""
    lows, highs = ([est.value if end is None else end for est, end in zip(estimates, ends, strict=True)]
                   for ends in ([est.low for est in estimates], [est.high for est in estimates]))  # fmt: skip
    return lows, highs


def _hover(point: PredictedPoint) -> str:
    predicted, actual = (written(*estimate).with_ends(" ({} to {})") for estimate in (point.predicted, point.measured))
    return hover(point.name, f"predicted: {predicted} target passes per answer", f"measured: {actual}")
