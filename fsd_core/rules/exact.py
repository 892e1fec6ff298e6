"""Rules that keep the target's distribution, and the single models at both ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fsd_core.rules.base import CHAIN, AcceptanceResult, Rule, residual, strictly

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.distributions import ScoredDraft


class Autoregressive(Rule):
    """The target alone, one token per forward: the baseline of every speed-up."""

    title, lossless, baseline, shapes = "Target alone", True, True, ()
    explanation = "The large model writes every token itself: the baseline."
    symbol, colour = "square", "#6b7280"
    kind: Literal["autoregressive"] = "autoregressive"


class DraftOnly(Rule):
    """The draft alone: the other end of the trade-off."""

    title, baseline, shapes = "Draft alone", True, ()
    explanation = "The small model writes everything: the fastest and least exact."
    symbol, colour = "triangle-down", "#a16207"
    kind: Literal["draft-only"] = "draft-only"


class Speculative(Rule):
    """Accept x with probability min(1, p(x)/q(x)), else sample from norm((p−q)₊). The bonus comes from p.

    Leviathan et al. 2023, Chen et al. 2023. Emitted tokens are distributed exactly as the target's samples. With greedy
    decoding they equal the target's, token for token. Acceptance at one position: Σ min(p,q).
    """

    title, long_title, lossless = "SD", "Speculative decoding (SD)", True
    explanation = "Keeps drafted tokens as far as the target agrees. The text has exactly the target's distribution."
    symbol, colour = "diamond", "#3b82f6"
    kind: Literal["speculative"] = "speculative"

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        accepted = strictly(rows, uniforms)
        return AcceptanceResult(accepted, accepted, rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return residual(row.target, row.draft)


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


class Synthetic(Rule):
    """Accept with a fixed probability, whatever was drafted; else a sample from p. The text is meaningless.

    With probability a, a round writes (1 − a^(γ+1)) / (1 − a) tokens on average (Leviathan et al. 2023, equation 1).
    """

    title, timing_only = "Synthetic", True
    explanation = "Keeps a drafted token with a set probability, whatever the models say: to time the loop alone."
    kind: Literal["synthetic"] = "synthetic"
    probability: float = Field(default=0.8, ge=0, le=1)

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        accepted, of_token = uniforms < self.probability, rows.of_token(rows.target)
        return AcceptanceResult(accepted, accepted, of_token.new_zeros(of_token.shape))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return row.target
