"""K-SEQ (Sun et al. 2023, SpecTr) tests each draft against the same lowered p."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.rules.base import passes, residual
from fsd_core.rules.several import CouplingResult, Drafts, Verifier, of_token

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.theory.distributions import Vector


def drafts_ratio(target: Tensor, draft: Tensor, count: Tensor) -> Tensor:
    """Return ρ of several positions by bisection, float64 [R]; see :func:`ratio`. count: number of drafts, int64 [R].

    Any ρ that is large enough is lossless. This one exceeds the best by at most n/2²⁴.
    """
    p, q = target.double(), draft.double()
    low, high = p.new_ones(len(p)), count.double().clamp_min(1)
    for _ in range(24):
        middle = (low + high) / 2
        overlap = (p / middle[:, None]).minimum(q).sum(-1)
        too_small = 1 - (1 - overlap) ** count > middle * overlap
        low, high = middle.where(too_small, low), high.where(too_small, middle)
    return high


def ratio(p: Vector, q: Vector, count: int) -> float:
    """Return ρ in [1,n]: the root of 1 − (1 − β)^n = ρβ, with β(ρ) = Σ min(p/ρ, q)."""
    from fsd_core.theory.distributions import once_in

    def left_over(ratio: float) -> float:
        overlap = (p / ratio).clip(max=q).sum()
        return float(once_in(overlap, count)) - ratio * overlap

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
        """Accept each draft with min(1, p/(ρq)); else sample from (p − min(p/ρ, q)·a/β)₊, a = 1 − (1−β)^n."""
        p, q = drafts.target.double(), drafts.draft.double()
        count = drafts.valid.sum(1)
        ratio = drafts_ratio(p, q, count)
        selected = drafts.none_selected()
        for i in range(drafts.count):
            x = drafts.tokens[:, i]
            accepted = passes(of_token(p, x) / ratio, of_token(q, x), uniforms[:, i]) & (selected < 0)
            selected = x.where(accepted & drafts.valid[:, i], selected)
        overlap = (p / ratio[:, None]).minimum(q)
        beta = overlap.sum(-1, keepdim=True)
        remainder = residual(p, overlap * (1 - (1 - beta) ** count[:, None]) / beta.clamp_min(1e-300))
        return CouplingResult(selected, remainder)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Return ρβ(ρ)."""
        rho = ratio(p, q, count)
        return rho * (p / rho).clip(max=q).sum()
