"""The speed-up that theory predicts from acceptance and cost, with measured runs laid over it."""

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
    """A run: its drafter, acceptance α of a drafted token that was judged, draft length γ, cost c of drafting one token
    in forwards of the target alone, and how many times as fast as the target alone it was."""

    name: str
    drafter: str
    acceptance: float
    length: int
    cost: float
    speedup: float
    mixed: tuple[str, ...] = ()
    """why that is not one figure: the conditions that differ between and within the two runs"""


def predicted(acceptance: float, length: int, cost: float) -> float:
    """(1 − α^(γ+1)) / ((1 − α)(γc + 1)): Leviathan et al. 2023, theorem 3.8, for a verification that costs as much as
    one token of the target alone."""
    tokens = length + 1 if acceptance >= 1 else (1 - acceptance ** (length + 1)) / (1 - acceptance)
    return tokens / (length * cost + 1)


def measured(runs: Sequence[RunView]) -> list[MeasuredSpeedup]:
    """Those of the runs that draft chains and were measured beside the target alone, on the same prompts."""
    alone = {_company(run): run for run in runs if run.decoding.acceptance.kind == "autoregressive"}
    found = []
    names = run_names(runs)
    for run in runs:
        m, target, topology = metrics(run), alone.get(_company(run)), run.decoding.topology
        base = metrics(target).get("tokens_per_second") if target else None
        if not (
            m.get("drafted") and m.get("draft_seconds") and target and base and topology and topology.kind == "chain"
        ):
            continue
        accepted = [share * m["rounds"] for share in m["acceptance_at_position"]]
        given = m["conditional_acceptance_at_position"]
        judged = sum(count / share for count, share in zip(accepted, given, strict=True) if share)
        if judged:
            cost = m["draft_seconds"] / m["drafted"] * base
            found.append(
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
    return found


def _company(run: RunView) -> tuple:
    """What runs share that may be held against each other."""
    return run.experiment_id, run.pair, run.task, run.seed, run.config.dtype, run.config.device, run.config.batch


def draw(points: Sequence[MeasuredSpeedup]) -> go.Figure:
    """A curve for each drafter and draft length, at its runs' mean cost, and the runs."""
    drawn = figure("Speed-up, predicted and measured", "Acceptance of a judged token (%)", "Speed-up (×)", height=430)
    if not points:
        return note(drawn, "No run that drafts a chain was measured beside the target alone.")
    groups = sorted({(point.drafter, point.length) for point in points})
    for (drafter, length), colour in zip(groups, PALETTE * 4, strict=False):
        own = [point for point in points if (point.drafter, point.length) == (drafter, length)]
        title = f"{drafter}, γ {length}"
        cost = sum(point.cost for point in own) / len(own)
        shares = [i / _STEPS for i in range(_STEPS + 1)]
        drawn.add_scatter(
            x=[100 * share for share in shares], y=[predicted(share, length, cost) for share in shares],
            name=f"Predicted, {title}, a token costs {cost:.2f} of one of the target",
            mode="lines", line={"color": colour, "width": 2}, hoverinfo="skip",
        )  # fmt: skip
        drawn.add_scatter(
            x=[100 * point.acceptance for point in own], y=[point.speedup for point in own],
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
                for point in own
            ],
        )  # fmt: skip
    return drawn.update_layout(margin_b=120)
