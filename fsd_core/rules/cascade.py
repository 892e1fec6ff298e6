"""Speculative cascades: the draft or the target writes a position, depending on how sure both are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.frozen import option
from fsd_core.rules.base import Knob
from fsd_core.rules.general import GeneralForm

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


Trigger = Literal["chow", "diff", "opt", "entropy"]


class Cascade(GeneralForm):
    """`cascade`: π = q, or p where the trigger defers to the target (Narasimhan et al. 2024, arXiv 2405.19261).

    With the deferral cost α, the trigger defers iff

    - ``chow``: max q < 1 − α;
    - ``diff``: max q < max p − α;
    - ``opt``: max q < max p − α·TV(p,q);
    - ``entropy``: H(q) > H(p) + α·TV(p,q), in nats.

    Maxima and entropies are of the raw distributions; TV is of the sampled ones. On a tree the likeliest child is
    written unless the trigger defers.
    """

    title, symbol = "Cascade", "star"
    explanation = "Lets the draft write where it is sure enough, compared with the target, and is exact SD elsewhere."
    note = "It can lengthen answers: at a cost of 0.05 by opt, its authors' rule made some 2.5 times as long."
    knob = Knob("deferral_cost", (-0.1, 0.0, 0.05, 0.2))
    needs_distribution = True
    kind: Literal["cascade"] = "cascade"
    trigger: Trigger = option("opt", "Trigger", "What decides whether a position is left to the target")
    deferral_cost: float | None = option(
        0.0, "Deferral cost", "How much surer the target must be to be asked; off is exact SD", plural="Deferral costs",
        allow_inf_nan=False,
    )  # fmt: skip

    def distribution(self, rows: ScoredDraft, divergence: Tensor) -> Tensor:
        cost = self.deferral_cost
        if cost is None:
            return rows.target
        return rows.target.where(self._defers(rows, cost)[..., None], rows.draft)

    def _defers(self, rows: ScoredDraft, cost: float) -> Tensor:
        """Return whether each position is left to the target, bool [B,R]."""
        p, q = rows.target_raw, rows.draft_raw
        if self.trigger == "chow":
            return q.amax(-1) < 1 - cost
        if self.trigger == "diff":
            return q.amax(-1) < p.amax(-1) - cost
        weighted_tv = cost * rows.variation
        if self.trigger == "opt":
            return q.amax(-1) < p.amax(-1) - weighted_tv
        target_entropy, draft_entropy = rows.raw_entropies
        return draft_entropy > target_entropy + weighted_tv

    def label_parts(self, knob: str) -> list[str]:
        return [self.trigger, f"cost {knob.removeprefix('≤ ')}".strip()]
