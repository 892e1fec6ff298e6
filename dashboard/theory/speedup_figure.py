"""Figure of the speed-up predicted from acceptance and cost, with measured runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go

from fsd_core.analysis.cells import ratio_mixed
from fsd_core.analysis.series import PALETTE, metrics, run_names
from fsd_core.conditions import MIXED_MARK
from fsd_core.formatting import percent
from fsd_core.plots.style import figure, hover, mixed_lines, note

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView

_STEPS = 60


class MeasuredSpeedup(NamedTuple):
    """A run: its drafter, acceptance α of a judged drafted token, draft length γ, cost c of drafting one token in
    forwards of the target alone, and speed-up over the target alone."""

    name: str
    drafter: str
    acceptance: float
    length: int
    cost: float
    speedup: float
    mixed: tuple[str, ...] = ()
    """conditions that differ between and within the two runs, so that the speed-up is not one figure"""


def predicted(acceptance: float, length: int, cost: float) -> float:
    """Return (1 − α^(γ+1)) / ((1 − α)(γc + 1)), theorem 3.8 of Leviathan et al. 2023.

    It assumes a verification that costs as much as one token of the target alone.
    """
    tokens = length + 1 if acceptance >= 1 else (1 - acceptance ** (length + 1)) / (1 - acceptance)
    return tokens / (length * cost + 1)


def measured(runs: Sequence[RunView]) -> list[MeasuredSpeedup]:
    """Return the runs that draft chains and were measured with the target alone, on the same prompts."""
    targets = {_comparability_key(run): run for run in runs if run.decoding.acceptance.kind == "autoregressive"}
    points = []
    names = run_names(runs)
    for run in runs:
        m, target, topology = metrics(run), targets.get(_comparability_key(run)), run.decoding.topology
        base = metrics(target).get("tokens_per_second") if target else None
        if not (
            m.get("drafted") and m.get("draft_seconds") and target and base and topology and topology.kind == "chain"
        ):
            continue
        accepted = [share * m["rounds"] for share in m["acceptance_at_position"]]
        conditional = m["conditional_acceptance_at_position"]
        judged = sum(count / share for count, share in zip(accepted, conditional, strict=True) if share)
        if judged:
            cost = m["draft_seconds"] / m["drafted"] * base
            points.append(
                MeasuredSpeedup(
                    names[run.id],
                    run.decoding.drafter.kind if run.decoding.drafter else "",
                    min(sum(accepted) / judged, 1.0),
                    topology.length,
                    cost,
                    m["tokens_per_second"] / base,
                    ratio_mixed(run, target),
                )
            )
    return points


def _comparability_key(run: RunView) -> tuple:
    """Return the properties that comparable runs share."""
    return run.experiment_id, run.pair, run.task, run.seed, run.config.dtype, run.config.device, run.config.batch


def draw(points: Sequence[MeasuredSpeedup]) -> go.Figure:
    """Return a curve for each drafter and draft length at its runs' mean cost, with the runs."""
    chart = figure(
        "Speed-up, predicted and measured",
        "Acceptance of a judged token (%)",
        "Tokens per second, × the target's",
        height=430,
    )
    if not points:
        return note(chart, "No run that drafts a chain was measured beside the target alone.")
    groups = sorted({(point.drafter, point.length) for point in points})
    for (drafter, length), colour in zip(groups, PALETTE * 4, strict=False):
        members = [point for point in points if (point.drafter, point.length) == (drafter, length)]
        title = f"{drafter}, γ {length}"
        cost = sum(point.cost for point in members) / len(members)
        shares = [i / _STEPS for i in range(_STEPS + 1)]
        chart.add_scatter(
            x=[100 * share for share in shares], y=[predicted(share, length, cost) for share in shares],
            name=f"Predicted, {title}, a token costs {cost:.2f} of one of the target",
            mode="lines", line={"color": colour, "width": 2}, hoverinfo="skip",
        )  # fmt: skip
        chart.add_scatter(
            x=[100 * point.acceptance for point in members], y=[point.speedup for point in members],
            name=f"Measured, {title}", mode="markers", marker={"color": colour, "size": 9, "symbol": "circle-open"},
            hoverinfo="text",
            hovertext=[
                hover(
                    point.name,
                    f"{percent(point.acceptance)} of judged tokens kept",
                    f"measured {point.speedup:.2f} ×{MIXED_MARK * bool(point.mixed)}, predicted "
                    f"{predicted(point.acceptance, point.length, point.cost):.2f} ×",
                    *mixed_lines(point.mixed),
                )
                for point in members
            ],
        )  # fmt: skip
    return chart.update_layout(margin_b=120)
