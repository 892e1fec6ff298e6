"""Figures of what is accepted, by position, prompt, divergence and number of drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go

from fsd_core.analysis.cells import PALETTE, against, families, measured, metrics, run_names
from fsd_core.metrics import METRICS
from fsd_core.plots.style import MUTED, TEXT, between, error_bar, escape, faint, figure, height_for, hover, note
from fsd_core.statistics.intervals import Estimate
from fsd_core.texts import percent

if TYPE_CHECKING:
    from fsd_core.storage.records import Prompts, RunView


OPTIMA = {
    "with_replacement": ("Optimum, with replacement", "#0d9488"),
    "without_replacement": ("Optimum, without replacement", "#8b5cf6"),
    "greedy": ("Optimum, greedy", "#ea6a12"),
}
"""names and colours by sampling scheme; verifiers have the colour of their optimum"""
_DASHES = ("dot", "dash", "dashdot", "longdash")
_SYMBOLS = ("circle-open", "square-open", "diamond-open", "triangle-up-open")


def draw_acceptance_by_drafts(
    optima: Mapping[str, Sequence[float]],
    verifiers: Mapping[str, tuple[str, str, Mapping[int, float]]],
    title: str = "Acceptance by the number of drafts",
) -> go.Figure:
    """Draw acceptance over the number of drafts.

    ``optima``: rates for 1, 2, … drafts, by sampling scheme. ``verifiers``: title, sampling scheme, and rates by number
    of drafts.
    """
    fig = figure(title, "Drafts per position", "Acceptance (%)", height=430)
    for sampling, rates in optima.items():
        name, colour = OPTIMA[sampling]
        _line(fig, name, dict(enumerate(rates, 1)), {"color": colour, "width": 2.5}, None)
    seen = dict.fromkeys(OPTIMA, 0)
    for name, sampling, rates in verifiers.values():
        index, seen[sampling] = seen[sampling], seen[sampling] + 1
        line = {"color": OPTIMA[sampling][1], "width": 1.2, "dash": _DASHES[index % len(_DASHES)]}
        _line(
            fig,
            name if len(rates) > 1 else f"{name} ({next(iter(rates))} drafts)",
            rates,
            line,
            _SYMBOLS[index % len(_SYMBOLS)],
        )
    fig.update_xaxes(dtick=1)
    fig.update_yaxes(range=[0, 102])
    return fig.update_layout(margin_b=120)


def _line(fig: go.Figure, title: str, rates: Mapping[int, float], line: dict, symbol: str | None) -> None:
    fig.add_scatter(
        x=list(rates), y=[100 * rate for rate in rates.values()], name=title, line=line,
        mode="lines" if symbol is None else "lines+markers", marker={"symbol": symbol or "circle", "size": 7},
        hoverinfo="text",
        hovertext=[
            hover(title, f"{n} draft{'' if n == 1 else 's'}: {percent(rate, digits=2)}") for n, rate in rates.items()
        ],
    )  # fmt: skip


MEASURES = ("mean_tokens", "target_passes")


class AnswerRow(NamedTuple):
    """One run: its ratios to the baseline by metric."""

    name: str
    ratios: dict[str, Estimate]


class AnswersInfo(NamedTuple):
    """Data of the figure. ``baseline`` is the name of the run that all others are divided by."""

    baseline: str | None
    rows: list[AnswerRow]


def answers_info(runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts) -> AnswersInfo:
    """Return one row per run that shares prompts with the baseline, except for the baseline itself.

    A draft alone never runs the target, so it has only its length.
    """
    if baseline is None or not baseline.metrics:
        return AnswersInfo(None, [])
    names = run_names([*measured(runs), *([] if any(run.id == baseline.id for run in runs) else [baseline])])
    rows = []
    for run in measured(runs):
        is_draft_alone = (
            run.decoding.acceptance.kind == "draft-only" or baseline.decoding.acceptance.kind == "draft-only"
        )
        keys = MEASURES[:1] if is_draft_alone else MEASURES
        estimates = {key: against(run, baseline, METRICS[key], prompts) for key in keys if run.id != baseline.id}
        ratios = {key: estimate for key, estimate in estimates.items() if estimate is not None}
        if ratios:
            rows.append(AnswerRow(names[run.id], ratios))
    return AnswersInfo(names[baseline.id], rows)


def draw_answers(data: AnswersInfo) -> go.Figure:
    """Draw a mark per run and metric, with its paired interval. Left of the line at 1 is less than the baseline."""
    height = max(300, 130 + 46 * len(data.rows))
    fig = figure("Answers relative to the baseline", "Ratio to the baseline (×)", "", height=height)
    if not data.rows:
        return note(fig, "No chosen run shares a prompt with the baseline.")
    for index, key in enumerate(MEASURES):
        rows = [(i, row) for i, row in enumerate(data.rows) if key in row.ratios]
        ratios = [row.ratios[key] for _, row in rows]
        values = [ratio.value for ratio in ratios]
        lows, highs = (
            [ratio.value if end is None else end for ratio, end in zip(ratios, side, strict=True)]
            for side in ([ratio.low for ratio in ratios], [ratio.high for ratio in ratios])
        )
        title = METRICS[key].title
        fig.add_scatter(
            x=values, y=[i + 0.1 + 0.24 * index for i, _ in rows], mode="markers", name=escape(title),
            marker={"color": PALETTE[index], "symbol": ("circle", "diamond")[index], "size": 9},
            error_x=error_bar(values, lows, highs, faint(PALETTE[index], 0.6)), hoverinfo="text",
            hovertext=[
                hover(row.name, f"{title} {value:.2f}× that of {data.baseline}{between(low, high, digits=2)}")
                for (_, row), value, low, high in zip(rows, values, lows, highs, strict=True)
            ],
        )  # fmt: skip
    # Names are above their marks: beside them they would take half of a narrow screen.
    for i, row in enumerate(data.rows):
        fig.add_annotation(
            text=escape(row.name), x=0, xref="paper", y=i - 0.2, showarrow=False, xanchor="left", yanchor="middle",
            font={"size": 12, "color": TEXT},
        )  # fmt: skip
        fig.add_shape(
            type="line", x0=1, x1=1, y0=i - 0.02, y1=i + 0.46, line={"dash": "dot", "width": 1.6, "color": MUTED}
        )
    fig.update_yaxes(range=[len(data.rows) - 0.4, -0.5], showgrid=False, ticks="", showticklabels=False)
    return fig.update_yaxes(title_text=None)


BELOW, ABOVE, THRESHOLD = "#0d9488", "#8a8f9c", "#db2777"


class DivergenceInfo(NamedTuple):
    """Bins of one run: ``edges`` has one more entry than ``counts``."""

    name: str
    divergence: str
    threshold: float | None
    edges: list[float]
    counts: list[int]


def runs_with_judged_tokens(runs: Sequence[RunView]) -> list[RunView]:
    """Return the runs that recorded divergences."""
    return [run for run in runs if (run.metrics or {}).get("divergence_histogram")]


def telling(runs: Sequence[RunView]) -> RunView | None:
    """Return the run to display first: the loosest of a sweep, which shows the most."""
    tuned = [run for run in runs if run.decoding.threshold is not None]
    return (tuned or [*runs] or [None])[-1]


def divergence_info(run: RunView) -> DivergenceInfo:
    """Return the histogram of one run. Empty if it recorded no divergence."""
    histogram = (run.metrics or {}).get("divergence_histogram") or {"edges": [], "counts": []}
    return DivergenceInfo(
        run_names([run])[run.id],
        run.decoding.divergence or "js",  # what rules without a threshold record
        run.decoding.threshold,
        list(histogram["edges"]),
        list(histogram["counts"]),
    )


def draw_divergence(data: DivergenceInfo) -> go.Figure:
    """Draw bars of counts, coloured if they start below the threshold, and the threshold as a line."""
    unit = "" if data.divergence.endswith(("tv", "random")) else " in nats"
    fig = figure("Divergence at judged tokens", f"Divergence {data.divergence}{unit}", "Draft tokens", height=320)
    fig.update_layout(title_subtitle_text=escape(data.name), margin_t=66)
    if not sum(data.counts):
        return note(fig, "This run recorded no divergences.")
    widths = [high - low for low, high in zip(data.edges, data.edges[1:], strict=False)]
    below = [data.threshold is not None and low < data.threshold for low in data.edges[:-1]]
    total = sum(data.counts)
    fig.add_bar(
        x=[low + width / 2 for low, width in zip(data.edges, widths, strict=False)], y=data.counts, width=widths,
        marker={"color": [BELOW if b else ABOVE for b in below], "line": {"width": 0}}, showlegend=False,
        hoverinfo="text",
        hovertext=[
            hover(f"{low:.3g} to {low + width:.3g}", f"{count} tokens ({percent(count / total)})")
            for low, width, count in zip(data.edges, widths, data.counts, strict=False)
        ],
    )  # fmt: skip
    if data.threshold is not None and data.threshold <= data.edges[-1]:
        fig.add_vline(
            x=data.threshold, line={"color": THRESHOLD, "width": 2}, annotation_text=f"T = {data.threshold:g}",
            annotation_position="top right",
        )  # fmt: skip
    return fig.update_layout(bargap=0)


class PositionCurve(NamedTuple):
    """One run: a share from 0 to 1 per draft position.

    ``unconditional`` counts the rounds that accepted the position. ``conditional`` counts them among the rounds that
    accepted all earlier positions, and is ``None`` if no round did.
    """

    name: str
    colour: str
    symbol: str
    unconditional: list[float]
    conditional: list[float | None]


class PositionsInfo(NamedTuple):
    """One curve per run that drafts."""

    curves: list[PositionCurve]


def positions_info(runs: Sequence[RunView]) -> PositionsInfo:
    """Return the curves of the runs that draft."""
    drafted = [run for run in measured(runs) if metrics(run).get("acceptance_at_position")]
    names = run_names(drafted)
    curves = []
    for family in families(drafted):
        for rank, run in enumerate(family.runs, start=1):
            colour = faint(family.colour, 0.3 + 0.7 * rank / len(family.runs))  # the loosest is the strongest
            shares = (metrics(run)[key] for key in ("acceptance_at_position", "conditional_acceptance_at_position"))
            curves.append(PositionCurve(names[run.id], colour, family.symbol, *map(list, shares)))
    return PositionsInfo(curves)


def draw_positions(data: PositionsInfo) -> go.Figure:
    """Draw unconditional shares as lines. Conditional ones are in the hover text."""
    fig = figure(
        "Acceptance at each draft position",
        "Position in the draft",
        "Rounds that accept it (%)",
        height=height_for(len(data.curves)),
    )
    if not data.curves:
        return note(fig, "No chosen run drafts tokens.")
    for curve in data.curves:
        positions = list(range(1, len(curve.unconditional) + 1))
        fig.add_scatter(
            x=positions, y=[100 * share for share in curve.unconditional], mode="lines+markers",
            name=escape(curve.name), marker={"size": 7, "symbol": curve.symbol},
            line={"color": curve.colour, "width": 1.8},
            hoverinfo="text", hovertext=[_positions_hover(curve, position) for position in positions],
        )  # fmt: skip
    fig.update_xaxes(dtick=1)
    return fig.update_yaxes(range=[0, 102])


def _positions_hover(curve: PositionCurve, position: int) -> str:
    conditional = curve.conditional[position - 1]
    return hover(
        curve.name,
        f"Position {position}: accepted in {percent(curve.unconditional[position - 1])} of rounds",
        "" if conditional is None else f"in {percent(conditional)} of those that accepted all before it",
    )


class RequestCurve(NamedTuple):
    """One run: the lowest acceptance rate of its prompts, the deciles and the highest, from 0 to 1."""

    name: str
    colour: str
    symbol: str
    deciles: list[float]


class RequestsInfo(NamedTuple):
    """One curve per run that drafts."""

    curves: list[RequestCurve]


def requests_info(runs: Sequence[RunView]) -> RequestsInfo:
    """Return the curves of the runs that draft. Runs of an earlier version have none until their metrics are
    recomputed."""
    drafted = [run for run in measured(runs) if metrics(run).get("acceptance_deciles")]
    names = run_names(drafted)
    curves = []
    for family in families(drafted):
        for rank, run in enumerate(family.runs, start=1):
            colour = faint(family.colour, 0.3 + 0.7 * rank / len(family.runs))  # the loosest is the strongest
            curves.append(RequestCurve(names[run.id], colour, family.symbol, metrics(run)["acceptance_deciles"]))
    return RequestsInfo(curves)


def draw_requests(data: RequestsInfo) -> go.Figure:
    """Draw the share of requests that accept no more than each rate. Further right is better."""
    fig = figure(
        "Acceptance over requests",
        "Acceptance rate of a request (%)",
        "Requests with no more (%)",
        height=height_for(len(data.curves)),
    )
    if not data.curves:
        return note(fig, "No chosen run drafts tokens.")
    shares = list(range(0, 101, 10))
    for curve in data.curves:
        rates = [100 * rate for rate in curve.deciles]
        fig.add_scatter(
            x=rates, y=shares, mode="lines+markers", name=escape(curve.name),
            marker={"size": 6, "symbol": curve.symbol}, line={"color": curve.colour, "width": 1.8},
            hoverinfo="text",
            hovertext=[_requests_hover(curve.name, *point) for point in zip(rates, shares, strict=True)],
        )  # fmt: skip
    return fig.update_yaxes(range=[-2, 102])


def _requests_hover(name: str, rate: float, share: int) -> str:
    ends = {0: "The request with the least", 100: "The request with the most"}
    text = ends.get(share) or f"{share} % of requests accept no more"
    return hover(name, f"{text}: {percent(rate / 100)}")
