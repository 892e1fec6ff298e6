"""K-SEQ (Sun et al. 2023, SpecTr): tests each draft against the same lowered p."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.rules.base import passes, residual
from fsd_core.rules.several import CouplingResult, Drafts, Verifier, of_token

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.theory.distributions import Vector


def drafts_ratio(target: Tensor, draft: Tensor, count: Tensor) -> Tensor:
    """ρ of several positions by bisection, float64 [R]; see :func:`ratio`. count: how many drafts there are, int64 [R].

    Any ρ that is not too small serves losslessly, and this one lies at most n/2²⁴ above the best.
    """
    p, q = target.double(), draft.double()
    low, high = p.new_ones(len(p)), count.double().clamp_min(1)
    for _ in range(24):
        middle = (low + high) / 2
        kept = (p / middle[:, None]).minimum(q).sum(-1)
        beyond = 1 - (1 - kept) ** count > middle * kept
        low, high = middle.where(beyond, low), high.where(beyond, middle)
    return high


def ratio(p: Vector, q: Vector, count: int) -> float:
    """ρ in [1,n]: the root of 1 − (1 − β)^n = ρβ, with β(ρ) = Σ min(p/ρ, q)."""
    from fsd_core.theory.distributions import once_in

    def left_over(ratio: float) -> float:
        kept = (p / ratio).clip(max=q).sum()
        return float(once_in(kept, count)) - ratio * kept

    if count == 1 or left_over(1.0) <= 0:
        return 1.0
    low, high = 1.0, float(count)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if left_over(middle) > 0 else (low, middle)
    return high


class KSeq(Verifier):
    """Tests each draft against the same lowered p."""

    title, long_title = "K-SEQ", "K-SEQ · several drafts, one test"
    explanation = "Gives every draft the same test: the target's probability over the draft's, lowered by one factor."
    kind: Literal["k-seq"] = "k-seq"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        """Accept each with min(1, p/(ρq)); else draw from (p − min(p/ρ, q)·a/β)₊, a = 1 − (1−β)^n."""
        p, q = drafts.target.double(), drafts.draft.double()
        count = drafts.valid.sum(1)
        ratio = drafts_ratio(p, q, count)
        chosen = drafts.none_chosen()
        for i in range(drafts.count):
            x = drafts.tokens[:, i]
            accepted = passes(of_token(p, x) / ratio, of_token(q, x), uniforms[:, i]) & (chosen < 0)
            chosen = x.where(accepted & drafts.valid[:, i], chosen)
        kept = (p / ratio[:, None]).minimum(q)
        beta = kept.sum(-1, keepdim=True)
        rest = residual(p, kept * (1 - (1 - beta) ** count[:, None]) / beta.clamp_min(1e-300))
        return CouplingResult(chosen, rest)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """ρβ(ρ)"""
        rho = ratio(p, q, count)
        return rho * (p / rho).clip(max=q).sum()
