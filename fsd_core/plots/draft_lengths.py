"""Speed over the draft length: how many tokens are worth drafting, by rule and knob value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go

from fsd_core.analysis.cells import ratio_mixed, speedup
from fsd_core.analysis.series import PALETTE, measured, run_names
from fsd_core.conditions import MIXED_MARK
from fsd_core.plots.style import between, error_bar, escape, figure, height_for, hover, mixed_lines, note
from fsd_core.statistics.intervals import Estimate

if TYPE_CHECKING:
    from fsd_core.config import DecodingConfig
    from fsd_core.storage.records import Prompts, RunView


class LengthPoint(NamedTuple):
    """One run: its draft length, and its throughput relative to the baseline's."""

    name: str
    tokens: int
    speed: Estimate
    mixed: tuple[str, ...]


class DraftLengthCurve(NamedTuple):
    """Settings that differ only in the draft length and the seed, by length."""

    name: str
    colour: str
    symbol: str
    lengths: list[LengthPoint]


class LengthsInfo(NamedTuple):
    """Data of the figure. ``baseline`` is the name of the run that all times per answer are compared with."""

    baseline: str | None
    curves: list[DraftLengthCurve]


def info(runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts) -> LengthsInfo:
    """Return the settings that were run with several draft lengths on prompts of the baseline."""
    if baseline is None or not baseline.metrics:
        return LengthsInfo(None, [])
    names = run_names([*measured(runs), *([] if any(run.id == baseline.id for run in runs) else [baseline])])
    groups: dict[tuple, list[LengthPoint]] = {}
    rules: dict[tuple, DecodingConfig] = {}
    for run in measured(runs):
        topology, speed = run.decoding.topology, speedup(run, baseline, prompts)
        if topology is None or speed is None or run.pair != baseline.pair:
            continue
        key = run.task, run.decoding.model_copy(update={"topology": topology.model_copy(update={"length": 1})})
        rules.setdefault(key, run.decoding)
        groups.setdefault(key, []).append(
            LengthPoint(names[run.id], topology.length, speed, ratio_mixed(run, baseline))
        )
    curves = []
    for key, lengths in groups.items():
        if len({point.tokens for point in lengths}) > 1:
            rule, label = rules[key].acceptance, rules[key].label
            name = " · ".join(part for part in label.split(" · ") if not part.startswith("γ "))
            colour = PALETTE[len(curves) % len(PALETTE)]
            curves.append(DraftLengthCurve(name, colour, rule.symbol, sorted(lengths, key=lambda point: point.tokens)))
    return LengthsInfo(names[baseline.id], curves)


def draw(data: LengthsInfo) -> go.Figure:
    """Draw a line for each setting, through the mean of its seeds."""
    fig = figure(
        "Speed over the draft length", "Draft length γ (tokens)", "× as fast as the baseline, by time per answer",
        height=height_for(len(data.curves)),
    )  # fmt: skip
    if not data.curves:
        return note(fig, "Choose runs that differ in their draft length.")
    for curve in data.curves:
        by_length: dict[int, list[float]] = {}
        for point in curve.lengths:
            by_length.setdefault(point.tokens, []).append(point.speed.value)
        group, values = escape(curve.name), [point.speed.value for point in curve.lengths]
        lows, highs = (
            [point.speed.value if end is None else end for point, end in zip(curve.lengths, side, strict=True)]
            for side in ([point.speed.low for point in curve.lengths], [point.speed.high for point in curve.lengths])
        )
        fig.add_scatter(
            x=list(by_length), y=[sum(speeds) / len(speeds) for speeds in by_length.values()], mode="lines",
            legendgroup=group, showlegend=False, line={"width": 1.8, "color": curve.colour}, hoverinfo="skip",
        )  # fmt: skip
        fig.add_scatter(
            x=[point.tokens for point in curve.lengths], y=values, mode="markers", name=group, legendgroup=group,
            marker={"color": curve.colour, "symbol": curve.symbol, "size": 9},
            error_y=error_bar(values, lows, highs, curve.colour), hoverinfo="text",
            hovertext=[
                hover(
                    point.name,
                    f"{point.speed.value:.2f}×{MIXED_MARK * bool(point.mixed)} as fast as {data.baseline}"
                    f"{between(low, high, digits=2)}, by time per answer",
                    *mixed_lines(point.mixed),
                )
                for point, low, high in zip(curve.lengths, lows, highs, strict=True)
            ],
        )  # fmt: skip
    return fig
