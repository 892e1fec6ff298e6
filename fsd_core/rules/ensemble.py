"""A fixed mixture of both models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.frozen import option
from fsd_core.rules.base import CHAIN, Knob
from fsd_core.rules.general import GeneralForm

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class Ensemble(GeneralForm):
    """`ensemble`: π = w·p + (1−w)·q; at temperature 0 the likeliest token of the mixture of the raw distributions.

    Acceptance at one position: 1 − w·TV(p,q). No other rule accepts as much at the same total variation from p
    (arXiv 2604.07622). transformers calls w `assistant_ensemble_weight`.
    """

    title, symbol, shapes = "Ensemble", "hexagon", (CHAIN,)
    explanation = "Writes every token from a fixed mixture of both models, in which the target has the given weight."
    knob = Knob("target_weight", (0.95, 0.9, 0.8, 0.6), strict=1.0, rising=False)
    needs_distribution = True
    kind: Literal["ensemble"] = "ensemble"
    target_weight: float = option(
        0.9, "Target weight", "Weight of the target in the mixture; 1 is exact SD", plural="Target weights",
        ge=0, le=1,
    )  # fmt: skip

    def distribution(self, rows: ScoredDraft, divergence: Tensor) -> Tensor:
        w = self.target_weight
        if w == 1:
            return rows.target
        if not rows.greedy:
            return w * rows.target + (1 - w) * rows.draft
        likeliest = (w * rows.target_raw + (1 - w) * rows.draft_raw).argmax(-1, keepdim=True)
        return rows.target.new_zeros(rows.target.shape).scatter(-1, likeliest, 1)
