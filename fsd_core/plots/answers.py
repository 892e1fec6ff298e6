"""Effects of a setting on answers besides speed: their length and target passes, relative to a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go

from fsd_core.analysis.cells import against
from fsd_core.analysis.series import PALETTE, measured, run_names
from fsd_core.metrics import METRICS
from fsd_core.plots.style import MUTED, TEXT, between, error_bar, escape, faint, figure, hover, note
from fsd_core.statistics.intervals import Estimate

if TYPE_CHECKING:
    from fsd_core.storage.records import Prompts, RunView

MEASURES = ("mean_tokens", "target_passes")


class AnswerRow(NamedTuple):
    """One run: its ratios to the baseline by metric."""

    name: str
    ratios: dict[str, Estimate]


class AnswersInfo(NamedTuple):
    """Data of the figure. ``baseline`` is the name of the run that all others are divided by."""

    baseline: str | None
    rows: list[AnswerRow]


def info(runs: Sequence[RunView], baseline: RunView | None, prompts: Prompts) -> AnswersInfo:
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


def draw(data: AnswersInfo) -> go.Figure:
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
