"""Recursive rejection sampling tests each draft in turn against the residual of p.

Miao et al. 2023 (SpecInfer); without replacement Jeon et al. 2024 and Yang et al. 2024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fsd_core.rules.base import passes, residual
from fsd_core.rules.several import CouplingResult, Drafts, Verifier, of_token

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.theory.distributions import Vector


def _recursive(drafts: Drafts, uniforms: Tensor, *, replaced: bool) -> CouplingResult:
    """Accept x_i with min(1, p_i/q_i). On rejection p ← norm((p−q)₊), and without replacement q(x_i) ← 0."""
    p, q = drafts.target.double(), drafts.draft.double()
    selected = drafts.none_selected()
    for i in range(drafts.count):
        x, valid = drafts.tokens[:, i], drafts.valid[:, i]
        accepted = passes(of_token(p, x), of_token(q, x), uniforms[:, i]) & (selected < 0) & valid
        selected = x.where(accepted, selected)
        p = _normalized(residual(p, q)).where(valid[:, None], p)
        if not replaced:
            q = _normalized(q.scatter(1, x[:, None], 0)).where(valid[:, None], q)
    return CouplingResult(selected, p)


def _normalized(weights: Tensor) -> Tensor:
    """Return the weights divided by their sum; all zero if that is zero. [R,V]"""
    return weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)


class RecursiveRejection(Verifier):
    """Tests each draft in turn against the residual of p."""

    title, long_title = "RRS", "RRS · several drafts in turn"
    explanation = "Tests each draft in turn. After a rejection, the next one is tested against the target's residual."
    kind: Literal["rrs"] = "rrs"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        return _recursive(drafts, uniforms, replaced=True)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Return 1 − Π_i (1 − Σ min(p_i, q)), p_1 = p, p_{i+1} = norm((p_i − q)₊)."""
        rejected = 1.0
        for _ in range(count):
            remainder = (p - q).clip(0)
            missed = remainder.sum()
            rejected *= missed
            if missed <= 0:
                break
            p = remainder / missed
        return 1 - rejected


class RecursiveRejectionWithout(Verifier):
    """RRS for drafts that are all different."""

    title, sampling = "RRS without replacement", "without_replacement"
    long_title = "RRS without replacement · several different drafts"
    explanation = "As RRS, with drafts that all begin with different tokens."
    kind: Literal["rrs-without-replacement"] = "rrs-without-replacement"

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        return _recursive(drafts, uniforms, replaced=False)

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        """Return the rate, sampled if V^(n−1) exceeds ``MOST_PATHS``; see :mod:`fsd_core.theory.rejections`."""
        from fsd_core.theory.rejections import without_replacement

        return without_replacement(p, q, count, sampled=samples)
