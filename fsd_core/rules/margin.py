"""MARS: the target's second choice is accepted if its logit is close to the first's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.frozen import option
from fsd_core.rules.base import AcceptanceResult, Knob, Rule, strictly

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class Margin(Rule):
    """`margin`: accept the target's likeliest token, and its second iff z₂/z₁ > θ; else a sample of p.

    Margin-aware verification, MARS (Song et al. 2026, arXiv 2601.15498). z are the target's raw logits, and z₁ > 0 is
    required. Shifting all logits changes their ratio and nothing else, so a value of θ is meaningful for one model
    only. At temperature 0, θ = 1 is exact SD; with sampling no θ is.
    """

    title, symbol = "Margin", "diamond-cross"
    explanation = "Keeps the target's likeliest token, and its second where the two logits are nearly equal."
    note = "It goes by a ratio of logits: a value that suits one target says nothing about another."
    knob = Knob("logit_ratio", (0.98, 0.95, 0.9, 0.8), is_off=False, rising=False)
    kind: Literal["margin"] = "margin"
    logit_ratio: float = option(
        0.9, "Logit ratio", "The second token is kept where its logit is more than this share of the first",
        plural="Logit ratios", gt=0, le=1,
    )  # fmt: skip

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        assert rows.logits is not None
        first, second = rows.logits.topk(2, -1).values.unbind(-1)
        least = first.where((first <= 0) | (second <= self.logit_ratio * first), second)
        accepted = rows.of_token(rows.logits) >= least
        return AcceptanceResult(accepted, strictly(rows, uniforms), rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return row.target
