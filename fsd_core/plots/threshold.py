"""Acceptance rate and mean acceptance length against the threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go

from fsd_core.analysis.series import families, interval, measured, metrics, run_names
from fsd_core.formatting import written
from fsd_core.plots.style import error_bar, escape, figure, height_for, hover, note

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView


class ThresholdMeasure(NamedTuple):
    """A metric that is plotted against the threshold. ``scale`` converts it to the unit of its axis."""

    key: str
    title: str
    axis: str
    scale: float
    unit: str


ACCEPTANCE_RATE = ThresholdMeasure(
    "acceptance_rate", "Acceptance rate against threshold", "Acceptance rate (%)", 100.0, " %"
)
ACCEPTANCE_LENGTH = ThresholdMeasure(
    "mean_acceptance_length", "Mean acceptance length against threshold", "Tokens per target forward", 1.0, ""
)


class ThresholdValue(NamedTuple):
    """One run's value with its interval, in the unit of the axis."""

    name: str
    threshold: float | None
    value: float
    low: float
    high: float


class ThresholdLine(NamedTuple):
    """The runs of one rule and divergence, by threshold. A run without a threshold is a level line."""

    name: str
    colour: str
    symbol: str
    values: list[ThresholdValue]

    @property
    def means(self) -> list[tuple[float, float]]:
        """(threshold, mean over its runs): the line passes here if several seeds were run."""
        by_threshold: dict[float, list[float]] = {}
        for v in self.values:
            if v.threshold is not None:
                by_threshold.setdefault(v.threshold, []).append(v.value)
        return [(t, sum(values) / len(values)) for t, values in sorted(by_threshold.items())]


class ThresholdInfo(NamedTuple):
    """Data of the figure. ``lines`` have finite thresholds. ``references`` have none (exact SD), or an infinite one
    (the draft alone)."""

    measure: ThresholdMeasure
    lines: list[ThresholdLine]
    references: list[ThresholdLine]


def info(runs: Sequence[RunView], measure: ThresholdMeasure) -> ThresholdInfo:
    """Return the values of the runs that speculate. Baselines draft nothing, so they have none."""
    drafted = [r for r in measured(runs) if r.decoding.drafter is not None and metrics(r)[measure.key] is not None]
    names = run_names(drafted)
    lines: list[ThresholdLine] = []
    references: list[ThresholdLine] = []
    for family in families(drafted):
        values = [_value(run, names[run.id], measure) for run in family.runs]
        if tuned := [v for v in values if v.threshold is not None and math.isfinite(v.threshold)]:
            lines.append(ThresholdLine(family.name, family.colour, family.symbol, tuned))
        off = ", T off" if family.runs[0].decoding.divergence else ""
        for threshold, suffix in ((None, off), (math.inf, ", T = ∞")):
            if level := [v for v in values if v.threshold == threshold]:
                references.append(ThresholdLine(family.name + suffix, family.colour, family.symbol, level))
    return ThresholdInfo(measure, lines, references)


def _value(run: RunView, name: str, measure: ThresholdMeasure) -> ThresholdValue:
    low, value, high = (end * measure.scale for end in interval(run, measure.key))
    return ThresholdValue(name, run.decoding.threshold, value, low, high)


def draw(data: ThresholdInfo) -> go.Figure:
    """Draw points with intervals, a line through the mean of each threshold, and a level line for runs without one."""
    fig = figure(
        data.measure.title,
        "Threshold T (in the units of each divergence)",
        data.measure.axis,
        height=height_for(len(data.lines) + len(data.references)),
    )
    if not data.lines:
        return note(fig, "Choose runs with a threshold to see what it changes.")
    thresholds = [t for line in data.lines for t, _ in line.means]
    margin = 0.04 * (max(thresholds) - min(thresholds)) or 0.05
    ends = [min(thresholds) - margin, max(thresholds) + margin]
    for line in data.references:
        for index, v in enumerate(line.values):
            fig.add_scatter(
                x=ends, y=[v.value, v.value], mode="lines", name=escape(line.name), legendgroup=escape(line.name),
                showlegend=index == 0, line={"dash": "dash", "width": 1.6, "color": line.colour},
                hoverinfo="text", hovertext=[_hover(v, data.measure)] * 2,
            )  # fmt: skip
    for line in data.lines:
        group = escape(line.name)
        fig.add_scatter(
            x=[t for t, _ in line.means], y=[mean for _, mean in line.means], mode="lines", legendgroup=group,
            showlegend=False, line={"width": 1.8, "color": line.colour}, hoverinfo="skip",
        )  # fmt: skip
        values = [v.value for v in line.values]
        fig.add_scatter(
            x=[v.threshold for v in line.values], y=values, mode="markers", name=group, legendgroup=group,
            marker={"color": line.colour, "symbol": line.symbol, "size": 9},
            error_y=error_bar(values, [v.low for v in line.values], [v.high for v in line.values], line.colour),
            hoverinfo="text", hovertext=[_hover(v, data.measure) for v in line.values],
        )  # fmt: skip
    return fig.update_xaxes(range=ends)


def _hover(v: ThresholdValue, measure: ThresholdMeasure) -> str:
    ends = (None, None) if v.low == v.high else (v.low, v.high)
    text = written(v.value, *ends, points=bool(measure.unit), digits=1 if measure.unit else 2)
    return hover(v.name, text._replace(value=text.value + measure.unit).with_ends(" ({} to {})"))
