"""Speed over the draft length: how many tokens are worth drafting, by rule and value of its knob."""

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
    """One run: its draft length, and its throughput over the baseline's."""

    name: str
    tokens: int
    speed: Estimate
    mixed: tuple[str, ...]


class DraftLengthCurve(NamedTuple):
    """Settings that differ in the draft length and the seed alone, by length."""

    name: str
    colour: str
    symbol: str
    lengths: list[LengthPoint]


class LengthsInfo(NamedTuple):
    """``baseline`` is the name of the run that all throughputs are divided by."""

    baseline: str | None
    curves: list[DraftLengthCurve]


def info(runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts) -> LengthsInfo:
    """The settings that were run with several draft lengths on prompts of the baseline."""
    if baseline is None or not baseline.metrics:
        return LengthsInfo(None, [])
    names = run_names([*measured(runs), *([] if any(run.id == baseline.id for run in runs) else [baseline])])
    groups: dict[tuple, list[LengthPoint]] = {}
    rules: dict[tuple, DecodingConfig] = {}
    for run in measured(runs):
        topology, found = run.decoding.topology, speedup(run, baseline, prompts)
        if topology is None or found is None or run.pair != baseline.pair:
            continue
        key = run.task, run.decoding.model_copy(update={"topology": topology.model_copy(update={"length": 1})})
        rules.setdefault(key, run.decoding)
        groups.setdefault(key, []).append(
            LengthPoint(names[run.id], topology.length, found, ratio_mixed(run, baseline))
        )
    curves = []
    for key, lengths in groups.items():
        if len({one.tokens for one in lengths}) > 1:
            rule, label = rules[key].acceptance, rules[key].label
            name = " · ".join(part for part in label.split(" · ") if not part.startswith("γ "))
            colour = PALETTE[len(curves) % len(PALETTE)]
            curves.append(DraftLengthCurve(name, colour, rule.symbol, sorted(lengths, key=lambda one: one.tokens)))
    return LengthsInfo(names[baseline.id], curves)


def draw(data: LengthsInfo) -> go.Figure:
    """A line for each setting, through the mean of its seeds."""
    drawn = figure(
        "Speed over the draft length", "Draft length γ (tokens)", "Throughput relative to the baseline (×)",
        height=height_for(len(data.curves)),
    )  # fmt: skip
    if not data.curves:
        return note(drawn, "Choose runs that differ in their draft length.")
    for curve in data.curves:
        by_length: dict[int, list[float]] = {}
        for one in curve.lengths:
            by_length.setdefault(one.tokens, []).append(one.speed.value)
        group, values = escape(curve.name), [one.speed.value for one in curve.lengths]
        lows, highs = (
            [one.speed.value if end is None else end for one, end in zip(curve.lengths, side, strict=True)]
            for side in ([one.speed.low for one in curve.lengths], [one.speed.high for one in curve.lengths])
        )
        drawn.add_scatter(
            x=list(by_length), y=[sum(some) / len(some) for some in by_length.values()], mode="lines",
            legendgroup=group, showlegend=False, line={"width": 1.8, "color": curve.colour}, hoverinfo="skip",
        )  # fmt: skip
        drawn.add_scatter(
            x=[one.tokens for one in curve.lengths], y=values, mode="markers", name=group, legendgroup=group,
            marker={"color": curve.colour, "symbol": curve.symbol, "size": 9},
            error_y=error_bar(values, lows, highs, curve.colour), hoverinfo="text",
            hovertext=[
                hover(
                    one.name,
                    f"{one.speed.value:.2f}×{MIXED_MARK * bool(one.mixed)} the throughput of {data.baseline}"
                    f"{between(low, high, digits=2)}",
                    *mixed_lines(one.mixed),
                )
                for one, low, high in zip(curve.lengths, lows, highs, strict=True)
            ],
        )  # fmt: skip
    return drawn
