"""Verifiers that test at most one draft. Another draft is accepted if it equals the written token.

SpecHub = Sun et al. 2024; greedy drafts = Hu et al. 2025 (arXiv 2502.18779).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.rules.several import CouplingResult, Drafts, Verifier, judge_one

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.theory.distributions import Vector


class NaiveSampling(Verifier):
    """Writes a sample of p and accepts a draft that equals it."""

    title, long_title = "NSS", "NSS · several drafts, the target's sample"
    explanation = "Samples from the target, and keeps a draft that happens to equal the sample."
    kind: Literal["nss"] = "nss"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        return CouplingResult(drafts.none_selected(), drafts.target)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Return Σ p (1 − (1 − q)^n): the chance that a sample from p is among the drafts."""
        from fsd_core.theory.distributions import once_in

        return (p * once_in(q, count)).sum()


class FirstDraft(Verifier):
    """Speculative decoding on the first draft. The recovered token may equal another draft."""

    title, long_title = "Naive", "Naive · several drafts, the first judged"
    explanation = "SD on the first draft. If it is rejected, the recovered token may be another of the drafts."
    kind: Literal["naive"] = "naive"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        return judge_one(drafts.valid.long().argmax(1), drafts, uniforms, drafts.valid)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Return Σ min(p, q) + Σ (p − q)₊ (1 − (1 − q)^{n−1}): the residual may hit another draft."""
        from fsd_core.theory.distributions import once_in

        return p.clip(max=q).sum() + ((p - q).clip(0) * once_in(q, count - 1)).sum()


class _LastJudged(Verifier):
    """Speculative decoding on the last draft, the only random one. The recovered token may equal another draft."""

    sampling = "greedy"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        sampled = drafts.valid & (drafts.draft.gather(1, drafts.tokens) > 0)  # q is 0 on the certain drafts
        return judge_one(sampled.long().argmax(1), drafts, uniforms, sampled)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Return Σ_S p + Σ_{x∉S} min(p, q'), with S the certain drafts and q' the distribution of the last."""
        from fsd_core.theory.optimum import greedy_acceptance

        return greedy_acceptance(p, q, count)


class GreedyOptimal(_LastJudged):
    """The optimal verifier for greedy drafts."""

    title, optimal = "Greedy, optimal", True
    long_title = "Greedy, optimal · likeliest drafts and one sampled"
    explanation = "Drafts the likeliest tokens and a sampled one. No other verifier accepts such drafts more often."
    kind: Literal["greedy-optimal"] = "greedy-optimal"


class SpecHub(_LastJudged):
    """The draft's likeliest token as a hub, and one sampled token: the optimal verifier for two greedy drafts."""

    title, long_title, drafts = "SpecHub", "SpecHub · two drafts", 2
    explanation = "Drafts the likeliest token and a sampled one. No other verifier accepts two such drafts more often."
    kind: Literal["spec-hub"] = "spec-hub"
