"""Predicted against measured: what replay says of each rule over its knob, and what decoding then did.

A small plot for each rule. The line is predicted, with its interval as a band; the points are measured.
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
    """Settings that differ in knob and draft length alone. ``curves``: a line each, by its draft length; under
    ``None`` one line of settings that each have a length of their own. In the order of the knob."""

    title: str
    axis: str
    curves: dict[int | None, list[PredictedPoint]]


Point = tuple["DecodingConfig", Estimate, Estimate]
"""a setting, predicted and measured"""


def info(runs: Sequence[RunView]) -> list[PredictedRule]:
    """The runs of which replay had predicted something."""
    points = []
    for run in measured(runs):
        if run.predicted and run.predicted.get(METRIC) is not None:
            low, value, high = interval(run, METRIC)
            predicted = Estimate(run.predicted[METRIC], *(run.predicted.get(METRIC + end) for end in ("_low", "_high")))
            points.append((run.decoding, predicted, Estimate(value, low, high)))
    return by_rule(points)


def by_rule(points: Iterable[Point]) -> list[PredictedRule]:
    """The settings that have a knob, in the order in which their rules come first."""
    groups: dict[tuple[str, str], list[PredictedPoint]] = {}
    for decoding, predicted, own in points:
        rule, topology = decoding.acceptance, decoding.topology
        if rule.knob is None or rule.knob_value is None or topology is None or not math.isfinite(rule.knob_value):
            continue
        title = " · ".join(part for part in decoding.line.split(" · ") if not part.startswith("γ "))
        axis = str(type(rule).model_fields[rule.knob.field].title or rule.knob.field)
        held = PredictedPoint(decoding.label, rule.knob_value, topology.length, predicted, own)
        groups.setdefault((title, axis), []).append(held)
    return [PredictedRule(*key, _curves(sorted(held, key=lambda one: one.knob))) for key, held in groups.items()]


def _curves(held: Sequence[PredictedPoint]) -> dict[int | None, list[PredictedPoint]]:
    if len({one.knob for one in held}) == len(held):  # each knob at one draft length
        return {None: list(held)}
    lengths = sorted({one.length for one in held})
    return {length: [one for one in held if one.length == length] for length in lengths}


def draw(rules: Sequence[PredictedRule]) -> go.Figure:
    """A small plot for each rule, all over the same scale."""
    if not rules:
        return note(figure(TITLE, "", ""), _EMPTY)
    columns = min(_COLUMNS, len(rules))
    rows = math.ceil(len(rules) / columns)
    height = 110 + _ROW * rows
    drawn = make_subplots(
        rows, columns, subplot_titles=[escape(rule.title) for rule in rules],
        vertical_spacing=64 / max(height - 110, 1), horizontal_spacing=0.06,
    )  # fmt: skip
    drawn.update_layout(template=TEMPLATE, title_text=escape(TITLE), height=height, hovermode="closest", margin_t=72)
    drawn.update_layout(title_y=1 - 18 / height)
    drawn.update_annotations(font_size=12, xanchor="center")
    drawn.update_yaxes(rangemode="tozero", matches="y")
    lengths = sorted({length for rule in rules for length in rule.curves if length is not None})
    named: set[tuple[int | None, bool]] = set()
    for place, rule in enumerate(rules):
        row, col = place // columns + 1, place % columns + 1
        for length, held in rule.curves.items():
            colour = PALETTE[0 if length is None else lengths.index(length) % len(PALETTE)]
            for trace in _traces(held, colour, "" if length is None else f", γ {length}"):
                key = length, trace.mode == "lines"
                shown = trace.hoverinfo != "skip" and key not in named
                named |= {key} if shown else set()
                drawn.add_trace(trace.update(showlegend=shown), row=row, col=col)
        drawn.update_xaxes(
            title_text=escape(rule.axis), title_font_size=11, title_standoff=4, nticks=6, row=row, col=col
        )
    return drawn


def _traces(held: Sequence[PredictedPoint], colour: str, suffix: str) -> list[go.Scatter]:
    knobs = [one.knob for one in held]
    lows, highs = _ends([one.predicted for one in held])
    own_lows, own_highs = _ends([one.measured for one in held])
    own = [one.measured.value for one in held]
    texts = [_hover(one) for one in held]
    return [
        go.Scatter(
            x=[*knobs, *reversed(knobs)], y=[*highs, *reversed(lows)], mode="lines", fill="toself", hoverinfo="skip",
            line={"width": 0}, fillcolor=faint(colour, 0.18),
        ),
        go.Scatter(
            x=knobs, y=[one.predicted.value for one in held], mode="lines", name=f"Predicted{suffix}",
            line={"width": 1.8, "color": colour, "dash": "dash"}, hoverinfo="text", hovertext=texts,
        ),
        go.Scatter(
            x=knobs, y=own, mode="markers", name=f"Measured{suffix}", marker={"color": colour, "size": 8},
            error_y=error_bar(own, own_lows, own_highs, colour), hoverinfo="text", hovertext=texts,
        ),
    ]  # fmt: skip


def _ends(estimates: Sequence[Estimate]) -> tuple[list[float], list[float]]:
    """Low and high ends; the value where none is known."""
    lows, highs = ([one.value if end is None else end for one, end in zip(estimates, ends, strict=True)]
                   for ends in ([one.low for one in estimates], [one.high for one in estimates]))  # fmt: skip
    return lows, highs


def _hover(one: PredictedPoint) -> str:
    predicted, own = (written(*part).with_ends(" ({} to {})") for part in (one.predicted, one.measured))
    return hover(one.name, f"predicted: {predicted} target passes per answer", f"measured: {own}")
