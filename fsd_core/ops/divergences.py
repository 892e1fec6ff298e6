"""Divergences between the target's distribution p and the draft's q at one position.

Formulas (natural logarithms; m = (p+q)/2):

======================  ==========================  =================
``kl``                  KL(q‖p) = Σ q·log(q/p)      0 … ∞
``reverse-kl``          KL(p‖q)                     0 … ∞
``js``                  ½KL(p‖m) + ½KL(q‖m)         0 … ln 2
``tv``                  ½Σ|p−q|                     0 … 1
``ag``                  ½KL(m‖p) + ½KL(m‖q)         0 … ∞
``top-k-…``             over the target's top k     as above
                        plus one "rest" bucket
``random``              a uniform in place of D     0 … 1
======================  ==========================  =================

``js`` is Lin 1991. ``ag`` (arithmetic-geometric) is Taneja 1995; the program
published with "Fuzzy Speculative Decoding" (Findings of ACL 2025) computes it
under the name of JS. Infinite values are kept: they mean "never accept".
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.special import xlogy


def _relative_entropy(a: Tensor, b: Tensor) -> Tensor:
    """Return KL(a‖b) = Σ a·log(a/b) over the last axis. a=0 adds 0, b=0<a makes it infinite. [..., V] → [...]"""
    return (xlogy(a, a) - xlogy(a, b)).sum(-1).clamp_min(0)


def entropy(p: Tensor) -> Tensor:
    """Return the entropy in nats. [..., V] → [...]"""
    return -p.xlogy(p).sum(-1)


def kl(p: Tensor, q: Tensor) -> Tensor:
    """Return KL(q‖p), infinite if the draft may write a token that the target cannot. [..., V], [..., V] → [...]"""
    return _relative_entropy(q, p)


def reverse_kl(p: Tensor, q: Tensor) -> Tensor:
    """Return KL(p‖q), infinite if the target may write a token that the draft cannot. [..., V], [..., V] → [...]"""
    return _relative_entropy(p, q)


def js(p: Tensor, q: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence, at most ln 2. [..., V], [..., V] → [...]"""
    smallest = torch.finfo(p.dtype).tiny  # in place of 0, so that its logarithm is finite and its term vanishes
    middle = ((p + q) / 2).clamp_min_(smallest).log_()
    p_terms, q_terms = (x.clamp_min(smallest).log_().sub_(middle).mul_(x) for x in (p, q))
    return (p_terms.add_(q_terms).sum(-1) / 2).clamp_(0, math.log(2))


def tv(p: Tensor, q: Tensor) -> Tensor:
    """Return the total variation. Lossless speculative decoding accepts with 1 − tv. [..., V], [..., V] → [...]"""
    return ((p - q).abs().sum(-1) / 2).clamp_max(1)


def ag(p: Tensor, q: Tensor) -> Tensor:
    """Return the arithmetic-geometric divergence, infinite if only one of p and q is 0. [..., V], [..., V] → [...]"""
    middle = (p + q) / 2
    return (_relative_entropy(middle, p) + _relative_entropy(middle, q)) / 2


_FULL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "kl": kl,
    "reverse-kl": reverse_kl,
    "js": js,
    "tv": tv,
    "ag": ag,
}


def _coarsen(p: Tensor, q: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return both over the target's k likeliest tokens and one bucket for the rest. [..., V] → [..., k+1]"""
    k = min(k, p.shape[-1])
    top_p, index = p.topk(k, dim=-1)
    top_q = q.gather(-1, index)
    # Summed, not subtracted from one: the difference would round a small rest to zero, and its divergence to infinity.
    rest_p = p.scatter(-1, index, 0).sum(-1, keepdim=True)
    rest_q = q.scatter(-1, index, 0).sum(-1, keepdim=True)
    return torch.cat([top_p, rest_p], -1), torch.cat([top_q, rest_q], -1)


def divergence(name: str, p: Tensor, q: Tensor, uniforms: Tensor, top_k: int = 50) -> Tensor:
    """Return the divergence called ``name`` at each position.

    ``p``, ``q``: [..., V] probabilities of target and draft. ``uniforms``: [...] in [0, 1), used only by
    ``random``. ``top_k``: number of tokens outside the rest bucket of the ``top-k-`` divergences. Returns [...].
    Raises ``KeyError`` for a name outside ``config.DIVERGENCES``.
    """
    if name == "random":
        return uniforms.to(p.dtype)
    if name.startswith("top-k-"):
        return _FULL[name.removeprefix("top-k-")](*_coarsen(p, q, top_k))
    return _FULL[name](p, q)
