"""Verifiers of several drafts per position: which token is written, given the drafts.

Each is a coupling of the target's distribution p with the joint distribution of the n drafts, so that the token is
distributed as p whatever was drafted, and is one of the drafts as often as :func:`fsd_core.theory.acceptance_rate`
says. Formulas and sources stand in :mod:`fsd_core.theory.verifiers`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fsd_core.errors import UnknownName
from fsd_core.ops.sampling import draw
from fsd_core.rules.base import passes, residual


@dataclass(frozen=True, slots=True)
class Drafts:
    """Positions with what was drafted there. R positions, n drafts.

    tokens: int64 [R,n] in the order in which they were drawn. valid: bool [R,n], which of them there are. target,
    draft: p and q, [R,V]; q is the distribution of the first draft, or, where all others are certain (``spec-hub``,
    ``greedy-optimal``), of the last: the draft's distribution without them.
    """

    tokens: Tensor
    valid: Tensor
    target: Tensor
    draft: Tensor

    @property
    def count(self) -> int:
        return self.tokens.shape[1]


Choose = Callable[[Drafts, Tensor], Tensor]
"""(drafts, uniforms float64 [R,n+1] in [0,1)) → the token written at each position, int64 [R]"""


def get_verifier(verifier: str) -> Choose:
    """The verifier of that name. Raises ``UnknownName``."""
    if verifier not in COUPLINGS:
        raise UnknownName(f"There is no verifier '{verifier}': expected one of {', '.join(COUPLINGS)}.")
    return COUPLINGS[verifier]


def _of(probabilities: Tensor, token: Tensor) -> Tensor:
    """[R,V], int64 [R] → [R]"""
    return probabilities.gather(1, token[:, None])[:, 0]


def _recursive(drafts: Drafts, uniforms: Tensor, *, replaced: bool) -> Tensor:
    """Accept x_i with min(1, p_i/q_i); on rejection p ← norm((p−q)₊), and without replacement q(x_i) ← 0."""
    p, q = drafts.target.double(), drafts.draft.double()
    chosen = torch.full_like(drafts.tokens[:, 0], -1)
    for i in range(drafts.count):
        x = drafts.tokens[:, i]
        there = drafts.valid[:, i]
        accepted = passes(_of(p, x), _of(q, x), uniforms[:, i]) & (chosen < 0) & there
        chosen = torch.where(accepted, x, chosen)
        p = torch.where(there[:, None], _normed(residual(p, q)), p)
        if not replaced:
            q = torch.where(there[:, None], _normed(q.scatter(1, x[:, None], 0)), q)
    return torch.where(chosen < 0, draw(p, uniforms[:, -1]), chosen)


def _normed(weights: Tensor) -> Tensor:
    """Divided by its sum; all zero where that is zero. [R,V]"""
    return weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)


def k_seq_ratio(target: Tensor, draft: Tensor, count: Tensor) -> Tensor:
    """K-SEQ's ρ by bisection, float64 [R]; see ``theory.verifiers``. count: how many drafts there are, int64 [R].

    Any ρ that is not too small serves losslessly, and this one lies at most n/2²⁴ above the best.
    """
    p, q = target.double(), draft.double()
    low, high = torch.ones_like(p[:, 0]), count.double().clamp_min(1)
    for _ in range(24):
        middle = (low + high) / 2
        kept = torch.minimum(p / middle[:, None], q).sum(-1)
        beyond = 1 - (1 - kept) ** count > middle * kept
        low, high = torch.where(beyond, middle, low), torch.where(beyond, high, middle)
    return high


def _k_seq(drafts: Drafts, uniforms: Tensor) -> Tensor:
    """Accept each with min(1, p/(ρq)); else draw from (p − min(p/ρ, q)·a/β)₊, a = 1 − (1−β)^n."""
    p, q = drafts.target.double(), drafts.draft.double()
    count = drafts.valid.sum(1)
    ratio = k_seq_ratio(p, q, count)
    kept = torch.minimum(p / ratio[:, None], q)
    chosen = torch.full_like(drafts.tokens[:, 0], -1)
    for i in range(drafts.count):
        x = drafts.tokens[:, i]
        accepted = passes(_of(p, x) / ratio, _of(q, x), uniforms[:, i]) & (chosen < 0) & drafts.valid[:, i]
        chosen = torch.where(accepted, x, chosen)
    beta = kept.sum(-1, keepdim=True)
    rest = residual(p, kept * (1 - (1 - beta) ** count[:, None]) / beta.clamp_min(1e-300))
    return torch.where(chosen < 0, draw(rest, uniforms[:, -1]), chosen)


def _sample(drafts: Drafts, uniforms: Tensor) -> Tensor:
    """A token of p, whatever was drafted."""
    return draw(drafts.target, uniforms[:, -1])


def _first(drafts: Drafts, uniforms: Tensor) -> Tensor:
    """Speculative decoding on the first draft; the others count where the correction hits them."""
    return _one(drafts.valid.long().argmax(1), drafts, uniforms)


def _last(drafts: Drafts, uniforms: Tensor) -> Tensor:
    """Speculative decoding on the last draft, the only one that is random; the correction may hit the certain ones."""
    drawn = drafts.valid & (drafts.draft.gather(1, drafts.tokens) > 0)  # q has none of the certain ones
    return _one(drawn.long().argmax(1), drafts, uniforms, drawn)


def _one(at: Tensor, drafts: Drafts, uniforms: Tensor, drawn: Tensor | None = None) -> Tensor:
    """Speculative decoding on the draft of index ``at`` (int64 [R]), where it is one that was ``drawn``."""
    p, q = drafts.target.double(), drafts.draft.double()
    x = _of(drafts.tokens, at)
    there = _of(drafts.valid if drawn is None else drawn, at)
    accepted = passes(_of(p, x), _of(q, x), uniforms[:, 0]) & there
    rest = torch.where(there[:, None], residual(p, q), p)
    return torch.where(accepted, x, draw(rest, uniforms[:, -1]))


COUPLINGS: dict[str, Choose] = {
    "rrs": lambda drafts, uniforms: _recursive(drafts, uniforms, replaced=True),
    "rrs-without-replacement": lambda drafts, uniforms: _recursive(drafts, uniforms, replaced=False),
    "k-seq": _k_seq,
    "nss": _sample,
    "naive": _first,
    "spec-hub": _last,
    "greedy-optimal": _last,
}
