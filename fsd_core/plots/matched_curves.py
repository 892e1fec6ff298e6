"""Accuracy, or excess NLL if nothing is scored, over cost: a curve with its band for each rule's knob, baselines as
marks, and the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from fsd_core.analysis.matching import KnobLine, MatchedComparison, MatchedPoint
from fsd_core.analysis.quality import NOT_RANKED, Quality
from fsd_core.formatting import MINUS, number, upper_first
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
from fsd_core.statistics.intervals import Estimate
from fsd_core.statistics.ranking import WithinLoss

_DASHES = ("solid", "dash", "dot")
_BANDS = ((3, 0.16), (6, 0.1), (12, 0.06))
"""(maximum number of curves, opacity of a band): stronger bands would hide one another"""
_NEAR = 0.6
"""share of the curves' width that a mark may add on the left; the target alone is often far off"""


def draw(matched: MatchedComparison) -> go.Figure:
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
    x, y = [p.ratio.value for p in points if p.ratio], [difference.value for difference in differences]
    errors = {}
    if bars:
        ends = [_ends(difference) for difference in differences]
        errors["error_y"] = error_bar(y, [low for low, _ in ends], [high for _, high in ends], faint(line.colour))
    fig.add_scatter(
        x=x, y=y, mode="markers", name=escape(line.name), legendgroup=escape(line.name), hoverinfo="text",
        showlegend=bars,
        hovertext=[_hover(p, matched) for p in points],
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


def _ends(value: Estimate) -> tuple[float, float]:
    low, high = (value.value if end is None else end for end in (value.low, value.high))
    return low, high


def _quality_text(value: float, quality: Quality) -> str:
    return f"{number(value, quality.digits, signed=True)} {quality.in_words}"


def _hover(point: MatchedPoint, matched: MatchedComparison) -> str:
    difference, quality = matched.quality.displayed(point.difference), matched.quality
    spread = between(*_ends(difference), digits=quality.digits).replace("-", MINUS)
    lines = [f"{_quality_text(difference.value, quality)}{spread}"]
    if point.ratio:
        ends = (point.ratio.value if end is None else end for end in point.ratio[1:])
        lines.append(f"{point.ratio.value:.2f}× {matched.cost.fewer}{between(*ends, digits=2)}")
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
        low = max(low, least)
        knob = line.between(row.position) if row.position else ""
        fig.add_scatter(
            x=[value], y=[i + 0.22], mode="markers", showlegend=False,
            marker={"color": line.colour, "symbol": line.symbol, "size": 10},
            error_x=error_bar([value], [low], [high], faint(line.colour, 0.7)), hoverinfo="text",
            hovertext=[hover(row.family, f"{value:.2f}×{between(low, high, digits=2)}", f"knob {knob}")],
        )  # fmt: skip
        fig.add_annotation(
            text=escape(row.family), x=0, xref="paper", y=i - 0.2, showarrow=False, xanchor="left", yanchor="middle",
            font={"size": 12, "color": TEXT},
        )  # fmt: skip
        fig.add_shape(type="line", x0=1, x1=1, y0=i, y1=i + 0.44, line={"dash": "dot", "width": 1.6, "color": MUTED})
    fig.update_yaxes(range=[len(rows) - 0.4, -0.5], showgrid=False, ticks="", showticklabels=False)
    return fig.update_yaxes(title_text=None)
