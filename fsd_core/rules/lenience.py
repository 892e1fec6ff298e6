"""Lenience: the draft's probability is scaled down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.frozen import option
from fsd_core.rules.base import CHAIN, AcceptanceResult, Knob, Rule, passes, residual, strictly

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class Lenience(Rule):
    """`lenience`: accept iff u ≤ p(x)/((1−α)·q(x)) (Leviathan et al. 2023, appendix A.5).

    A rejected token is resampled from norm((p − (1−α)·q)₊). With ``stock_residual`` it is resampled from norm((p−q)₊),
    as in engines that change only the test. No token is written with more than 1/(1−α) of its probability under p.
    """

    title, symbol, shapes = "Lenience", "triangle-left", (CHAIN,)
    explanation = "The strict test with the draft's probability lowered by a share, so that more of its tokens pass."
    greedy_note = "At temperature 0 it forgives nothing and is exact SD."
    knob = Knob("lenience", (0.3, 0.7, 0.95), strict=0.0)
    needs_distribution = True
    kind: Literal["lenience"] = "lenience"
    lenience: float = option(
        0.3, "Lenience", "Share by which the draft's probability is lowered; 0 is exact SD", plural="Leniences",
        ge=0, lt=1,
    )  # fmt: skip
    stock_residual: bool = option(
        False, "Stock residual", "Replace a rejected token as strict decoding does, whatever the lenience is"
    )

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        lowered = (1 - self.lenience) * rows.of_token(rows.draft)
        accepted = passes(rows.of_token(rows.target), lowered, uniforms)
        return AcceptanceResult(accepted, strictly(rows, uniforms), rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return residual(row.target, row.draft if self.stock_residual else (1 - self.lenience) * row.draft)

    def label_parts(self, knob: str) -> list[str]:
        return [knob.removeprefix("≤ "), *(["stock residual"] if self.stock_residual else [])]
