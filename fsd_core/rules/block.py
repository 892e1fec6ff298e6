"""Block verification tests the tokens of a draft jointly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.rules.base import CHAIN, AcceptanceResult, Rule, residual

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft


class Block(Rule):
    """`block`: lossless; in expectation it accepts at least as many tokens as the token-wise test (Sun et al. 2024).

    With P₀ = 1, Pᵢ = min(1, Pᵢ₋₁·p(xᵢ)/q(xᵢ)), Zᵢ = Σ_v (Pᵢ·p(v|x≤i) − q(v|x≤i))₊, and hᵢ = Zᵢ/(Zᵢ + 1 − Pᵢ) for i < γ,
    h_γ = P_γ: the first τ = max{i: uᵢ < hᵢ} tokens are accepted. The next one is sampled from norm((P_τ·p − q)₊), or
    from p if τ = γ (arXiv 2403.10444, algorithm 2). At temperature 0 it accepts what the token-wise test accepts.
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
        joint = _joint_ratio(rows)  # Pᵢ, [B,R] for i from 1
        previous = joint.roll(1, -1)
        previous[:, 0] = 1  # Pᵢ₋₁
        excess = _excess(previous, rows).sum(-1, dtype=joint.dtype)  # Zᵢ₋₁
        chance = (excess / (excess + 1 - previous).clamp_min(1e-300)).roll(-1, -1)  # hᵢ; the last one is Pᵢ
        positions = excess.new_ones(excess.shape).long().cumsum(-1)  # i
        lengths = positions[:, -1:] if rows.lengths is None else rows.lengths[:, None]
        chance = joint.where(positions == lengths, chance)
        ends = (uniforms < chance) & (positions <= lengths)
        accepted = positions <= (positions * ends).amax(-1, keepdim=True)
        return AcceptanceResult(accepted, accepted, rows.divergence("js", noise), previous)

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        assert result.weight is not None
        return residual(result.weight.to(row.target.dtype)[..., None] * row.target, row.draft)


def _excess(previous: Tensor, rows: ScoredDraft) -> Tensor:
    """Return (Pᵢ₋₁·p − q)₊, [B,R,V]."""
    return (previous.to(rows.target.dtype)[..., None] * rows.target - rows.draft).clamp_min(0)


def _joint_ratio(rows: ScoredDraft) -> Tensor:
    """Return Pᵢ of each drafted token, float64 [B,R].

    It is the product of the ratios, divided by its running maximum if that exceeds one. This equals min(1, ·) at every
    step.
    """
    steps = rows.of_token(rows.target).double().log() - rows.of_token(rows.draft).double().log()
    product = steps.cumsum(-1)
    return (product - product.cummax(-1).values.clamp_min(0)).exp()
