"""Verifiers that test one draft at most. Another draft is accepted where it equals the token that they write.

SpecHub = Sun et al. 2024; greedy drafts = Hu et al. 2025 (arXiv 2502.18779).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.rules.several import CouplingResult, Drafts, Verifier, judge_one

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.theory.distributions import Vector


class NaiveSampling(Verifier):
    """Writes a sample of p, and accepts a draft that equals it."""

    title, long_title = "NSS", "NSS · several drafts, the target's sample"
    explanation = "Samples from the target, and keeps a draft that happens to equal the sample."
    kind: Literal["nss"] = "nss"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        return CouplingResult(drafts.none_chosen(), drafts.target)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Σ p (1 − (1 − q)^n): a sample from p that happens to be among the drafts."""
        from fsd_core.theory.distributions import once_in

        return (p * once_in(q, count)).sum()


class FirstDraft(Verifier):
    """Speculative decoding on the first draft. Its recovered token may be another of the drafts."""

    title, long_title = "Naive", "Naive · several drafts, the first judged"
    explanation = "SD on the first draft. If it is rejected, the recovered token may be another of the drafts."
    kind: Literal["naive"] = "naive"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        return judge_one(drafts.valid.long().argmax(1), drafts, uniforms, drafts.valid)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Σ min(p, q) + Σ (p − q)₊ (1 − (1 − q)^{n−1}): the residual may hit one of the others."""
        from fsd_core.theory.distributions import once_in

        return p.clip(max=q).sum() + ((p - q).clip(0) * once_in(q, count - 1)).sum()


class _LastJudged(Verifier):
    """Speculative decoding on the last draft, the only random one. The recovered token may be one of the others."""

    sampling = "greedy"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        drawn = drafts.valid & (drafts.draft.gather(1, drafts.tokens) > 0)  # q has none of the certain ones
        return judge_one(drawn.long().argmax(1), drafts, uniforms, drawn)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Σ_S p + Σ_{x∉S} min(p, q'), S the certain drafts and q' the distribution of the last."""
        from fsd_core.theory.optimum import greedy_acceptance

        return greedy_acceptance(p, q, count)


class GreedyOptimal(_LastJudged):
    """The optimal verifier of greedy drafts."""

    title, optimal = "Greedy, optimal", True
    long_title = "Greedy, optimal · likeliest drafts and one sampled"
    explanation = "Drafts the likeliest tokens and a sampled one. No other verifier accepts such drafts more often."
    kind: Literal["greedy-optimal"] = "greedy-optimal"


class SpecHub(_LastJudged):
    """The draft's likeliest token as a hub, and one other: the optimal verifier of two greedy drafts."""

    title, long_title, drafts = "SpecHub", "SpecHub · two drafts", 2
    explanation = "Drafts the likeliest token and a sampled one. No other verifier accepts two such drafts more often."
    kind: Literal["spec-hub"] = "spec-hub"
