"""Figures of what is accepted, by position, prompt, divergence and number of drafts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import plotly.graph_objects as go

from fsd_core.analysis.cells import PALETTE, against, families, measured, metrics, names_beside, run_names
from fsd_core.metrics import METRICS
from fsd_core.plots.style import Line, between, error_bar, escape, faint, figure, height_for, hover, name_rows, note
from fsd_core.statistics.intervals import Estimate
from fsd_core.texts import percent

if TYPE_CHECKING:
    from fsd_core.storage.records import Prompts, RunView


_T = TypeVar("_T")
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


class AnswersInfo(NamedTuple):
    """Data of the figure. ``baseline`` is the name of the run that all others are divided by."""

    baseline: str | None
    rows: dict[str, dict[str, Estimate]]
    """the ratios of each run to the baseline, by name and metric"""


def answers_info(runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts) -> AnswersInfo:
    """Return the ratios of each run that shares prompts with the baseline, except for the baseline itself.

    A draft alone never runs the target, so it has only its length.
    """
    if baseline is None or not baseline.metrics:
        return AnswersInfo(None, {})
    names = names_beside(measured(runs), baseline)
    rows = {}
    for run in measured(runs):
        is_draft_alone = "draft-only" in (run.decoding.acceptance.kind, baseline.decoding.acceptance.kind)
        keys = MEASURES[:1] if is_draft_alone else MEASURES
        estimates = {key: against(run, baseline, METRICS[key], prompts) for key in keys if run.id != baseline.id}
        if ratios := {key: estimate for key, estimate in estimates.items() if estimate is not None}:
            rows[names[run.id]] = ratios
    return AnswersInfo(names[baseline.id], rows)


def draw_answers(data: AnswersInfo) -> go.Figure:
    """Draw a mark per run and metric, with its paired interval. Left of the line at 1 is less than the baseline."""
    height = max(300, 130 + 46 * len(data.rows))
    fig = figure("Answers relative to the baseline", "Ratio to the baseline (×)", "", height=height)
    if not data.rows:
        return note(fig, "No chosen run shares a prompt with the baseline.")
    for index, key in enumerate(MEASURES):
        rows = [(i, name, ratios[key]) for i, (name, ratios) in enumerate(data.rows.items()) if key in ratios]
        ratios, title = [ratio for *_, ratio in rows], METRICS[key].title
        fig.add_scatter(
            x=[ratio.value for ratio in ratios], y=[i + 0.1 + 0.24 * index for i, *_ in rows], mode="markers",
            name=escape(title),
            marker={"color": PALETTE[index], "symbol": ("circle", "diamond")[index], "size": 9},
            error_x=error_bar(ratios, faint(PALETTE[index], 0.6)), hoverinfo="text",
            hovertext=[
                hover(name, f"{title} {ratio.value:.2f}× that of {data.baseline}{between(ratio, digits=2)}")
                for _, name, ratio in rows
            ],
        )  # fmt: skip
    return name_rows(fig, list(data.rows), (-0.02, 0.46))


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


def _drafting(runs: Sequence[RunView], *keys: str) -> list[Line]:
    """Return a line for each run that drafts, with what its metrics hold under these keys, point by point."""
    drafted = [run for run in measured(runs) if metrics(run).get(keys[0])]
    names = run_names(drafted)
    lines = []
    for family in families(drafted):
        for rank, run in enumerate(family.runs, start=1):
            colour = faint(family.colour, 0.3 + 0.7 * rank / len(family.runs))  # the loosest is the strongest
            points = list(zip(*(metrics(run)[key] for key in keys), strict=True))
            lines.append(Line(names[run.id], colour, family.symbol, points))
    return lines


def _draw_lines(
    titles: tuple[str, str, str], lines: Sequence[Line[_T]],
    points: Callable[[Line[_T]], Iterable[tuple[float, float, str]]], size: int,
) -> go.Figure:  # fmt: skip
    """Return a figure with its title and those of its axes. ``points``: the places of a line's marks, and what hovering
    shows of each."""
    fig = figure(*titles, height=height_for(len(lines)))
    if not lines:
        return note(fig, "No chosen run drafts tokens.")
    for line in lines:
        x, y, texts = zip(*points(line), strict=True)
        fig.add_scatter(
            x=x, y=y, mode="lines+markers", name=escape(line.name), marker={"size": size, "symbol": line.symbol},
            line={"color": line.colour, "width": 1.8}, hoverinfo="text", hovertext=texts,
        )  # fmt: skip
    return fig


def positions_info(runs: Sequence[RunView]) -> list[Line[tuple[float, float | None]]]:
    """Return for each run that drafts the shares from 0 to 1 of rounds that accept each draft position.

    The first is of all rounds, the second of those that accepted all earlier positions, ``None`` if none did.
    """
    return _drafting(runs, "acceptance_at_position", "conditional_acceptance_at_position")


def draw_positions(lines: Sequence[Line[tuple[float, float | None]]]) -> go.Figure:
    """Draw unconditional shares as lines. Conditional ones are in the hover text."""

    def points(line: Line[tuple[float, float | None]]) -> Iterator[tuple[float, float, str]]:
        for position, (share, conditional) in enumerate(line.points, start=1):
            text = f"Position {position}: accepted in {percent(share)} of rounds"
            more = "" if conditional is None else f"in {percent(conditional)} of those that accepted all before it"
            yield position, 100 * share, hover(line.name, text, more)

    titles = "Acceptance at each draft position", "Position in the draft", "Rounds that accept it (%)"
    fig = _draw_lines(titles, lines, points, 7)
    return fig.update_xaxes(dtick=1).update_yaxes(range=[0, 102]) if lines else fig


def requests_info(runs: Sequence[RunView]) -> list[Line[tuple[float]]]:
    """Return for each run that drafts the lowest acceptance rate of its prompts, the deciles and the highest, from 0 to
    1. Runs of an earlier version have none until their metrics are recomputed."""
    return _drafting(runs, "acceptance_deciles")


def draw_requests(lines: Sequence[Line[tuple[float]]]) -> go.Figure:
    """Draw the share of requests that accept no more than each rate. Further right is better."""
    ends = {0: "The request with the least", 100: "The request with the most"}

    def points(line: Line[tuple[float]]) -> Iterator[tuple[float, float, str]]:
        for share, (rate,) in zip(range(0, 101, 10), line.points, strict=True):
            text = ends.get(share) or f"{share} % of requests accept no more"
            yield 100 * rate, share, hover(line.name, f"{text}: {percent(rate)}")

    titles = "Acceptance over requests", "Acceptance rate of a request (%)", "Requests with no more (%)"
    fig = _draw_lines(titles, lines, points, 6)
    return fig.update_yaxes(range=[-2, 102]) if lines else fig
