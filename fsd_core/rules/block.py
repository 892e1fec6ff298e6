"""Block verification: the tokens of a draft are tested together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.rules.base import CHAIN, AcceptanceResult, Rule, residual

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class Block(Rule):
    """`block`: lossless, and keeps at least as many tokens as the token-wise test in expectation (Sun et al. 2024).

    With P₀ = 1, Pᵢ = min(1, Pᵢ₋₁·p(xᵢ)/q(xᵢ)), Zᵢ = Σ_v (Pᵢ·p(v|x≤i) − q(v|x≤i))₊, and hᵢ = Zᵢ/(Zᵢ + 1 − Pᵢ) for
    i < γ, h_γ = P_γ: the kept tokens are the first τ = max{i: uᵢ < hᵢ}; the next one is drawn from
    norm((P_τ·p − q)₊), and from p where τ = γ (arXiv 2403.10444, algorithm 2). At temperature 0 it keeps what the
    token-wise test keeps.
    """

    title, long_title, lossless, shapes = "Block", "Block verification", True, (CHAIN,)
    explanation = (
        "Tests the drafted tokens together. Exactly the target's distribution, with a little more kept than by SD."
    )
    symbol, colour = "diamond-wide", "#0e7490"
    needs_distribution = True
    judges_together = True
    kind: Literal["block"] = "block"

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        reached = _reached(rows)  # Pᵢ, [B,R] for i from 1
        before = reached.roll(1, -1)
        before[:, 0] = 1  # Pᵢ₋₁
        rest = _rest(before, rows).sum(-1, dtype=reached.dtype)  # Zᵢ₋₁
        chance = (rest / (rest + 1 - before).clamp_min(1e-300)).roll(-1, -1)  # hᵢ; the last is not of this form
        places = rest.new_ones(rest.shape).long().cumsum(-1)  # i
        lengths = places[:, -1:] if rows.lengths is None else rows.lengths[:, None]
        chance = reached.where(places == lengths, chance)
        ends = (uniforms < chance) & (places <= lengths)
        kept = places <= (places * ends).amax(-1, keepdim=True)
        return AcceptanceResult(kept, kept, rows.divergence("js", noise), before)

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        assert result.weight is not None
        return residual(result.weight.to(row.target.dtype)[..., None] * row.target, row.draft)


def _rest(before: Tensor, rows: ScoredDraft) -> Tensor:
    """(Pᵢ₋₁·p − q)₊, [B,R,V]"""
    return (before.to(rows.target.dtype)[..., None] * rows.target - rows.draft).clamp_min(0)


def _reached(rows: ScoredDraft) -> Tensor:
    """Pᵢ of each drafted token, float64 [B,R]: the product of the ratios, less its own maximum so far if that is above
    one, which is what min(1, ·) at every step comes to."""
    steps = rows.of_token(rows.target).double().log() - rows.of_token(rows.draft).double().log()
    product = steps.cumsum(-1)
    return (product - product.cummax(-1).values.clamp_min(0)).exp()
