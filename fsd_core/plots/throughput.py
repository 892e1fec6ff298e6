"""Throughput of each run relative to a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go

from fsd_core.analysis.cells import ratio_mixed, throughput_ratio
from fsd_core.analysis.series import families, measured, metrics, run_names
from fsd_core.conditions import MIXED_MARK
from fsd_core.formatting import decimals, number
from fsd_core.plots.style import MUTED, TEXT, between, error_bar, escape, figure, hover, mixed_lines, note

if TYPE_CHECKING:
    from fsd_core.storage.records import Prompts, RunView

# Below the middle of its slot, where the label's line ends. The mark extends a little beyond the bar.
BAR = (0.06, 0.48)
MARK_PLACE = (0.0, 0.54)
ROW, LINE = 42, 20
"""pixels of a bar with its label, and of one more line"""
_LONGEST = 44
"""maximum characters of a label on one line of a phone"""


class Bar(NamedTuple):
    """One run: its speed-up over the baseline with an interval, and its tokens per second."""

    run_id: str
    name: str
    colour: str
    tokens_per_second: float
    speedup: float
    low: float | None
    high: float | None
    mixed: tuple[str, ...] = ()
    """conditions that differ within the tokens per second"""
    speedup_mixed: tuple[str, ...] = ()
    """the same for the speed-up"""


class ThroughputInfo(NamedTuple):
    """Data of the figure. ``baseline`` is the name of the run that all others are divided by."""

    baseline: str | None
    bars: list[Bar]


def info(runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts) -> ThroughputInfo:
    """Return one bar per run that has a throughput and shares prompts with the baseline, in the given order. Empty if
    the baseline has none."""
    timed = [run for run in measured(runs) if metrics(run)["tokens_per_second"]]
    if baseline is None or not baseline.metrics or not metrics(baseline)["tokens_per_second"]:
        return ThroughputInfo(None, [])
    names = run_names(timed if any(run.id == baseline.id for run in timed) else [*timed, baseline])
    colours = {run.id: family.colour for family in families(timed) for run in family.runs}
    bars = [
        Bar(
            run.id,
            names[run.id],
            colours[run.id],
            metrics(run)["tokens_per_second"],
            *ratio,
            run.speed_mixed,
            ratio_mixed(run, baseline),
        )
        for run in timed
        if (ratio := throughput_ratio(run, baseline, prompts)) is not None
    ]
    return ThroughputInfo(names[baseline.id], bars)


def draw(data: ThroughputInfo) -> go.Figure:
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
        orientation="h", x=speedups, y=[escape(bar.name) for bar in data.bars], width=BAR[1] - BAR[0], offset=BAR[0],
        marker={"color": [bar.colour for bar in data.bars], "opacity": 0.85}, showlegend=False,
        error_x=error_bar(speedups, [_ends(bar)[0] for bar in data.bars], [_ends(bar)[1] for bar in data.bars], MUTED),
        hoverinfo="text", hovertext=[_hover(bar, data.baseline or "") for bar in data.bars],
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


def _ends(bar: Bar) -> tuple[float, float]:
    """Return the ends of the bar's interval, or its own value twice if it has none."""
    return (bar.speedup if bar.low is None else bar.low), (bar.speedup if bar.high is None else bar.high)


def _label(bar: Bar, baseline: str) -> tuple[str, str]:
    """Return the bar's name, and its figures."""
    digits = max(1, decimals(bar.speedup, bar.low, bar.high))
    mark, ratio_mark = MIXED_MARK * bool(bar.mixed), MIXED_MARK * bool(bar.speedup_mixed)
    ratio = "baseline" if bar.name == baseline else f"{number(bar.speedup, digits)}×{ratio_mark}"
    return escape(bar.name), f"{bar.tokens_per_second:,.0f} tokens/s{mark} · {ratio}"


def _hover(bar: Bar, baseline: str) -> str:
    speed = f"{bar.tokens_per_second:.1f} tokens/s{MIXED_MARK * bool(bar.mixed)}"
    if bar.name == baseline:
        return hover(bar.name, speed, "The baseline", *mixed_lines(bar.mixed))
    ratio = f"{bar.speedup:.2f}×{MIXED_MARK * bool(bar.speedup_mixed)} the baseline{between(*_ends(bar), digits=2)}"
    return hover(bar.name, speed, ratio, *mixed_lines(bar.speedup_mixed))
