"""The distribution of mentored decoding: among all π with KL(p‖π) ≤ D, one that overlaps most with q.

With ρ = log(q/p), π(v) = p(v)·exp(clamp(ρ(v), β, α)) for the α ≥ 0 ≥ β at which π sums to one and KL(p‖π), which is
−Σ p·clamp(ρ, β, α), equals D (Tran-Thien 2023; his a is e^−α, his b is e^−β).

Both bounds follow from the mass c that α cuts off and β hands out. A token v is cut or raised iff c exceeds its own
c(v), which is Σ (q − p·e^ρ(v))₊ for ρ(v) > 0, and Σ (p·e^ρ(v) − q)₊ otherwise. So if tokens are sorted by c(v), the
cut and raised ones come first, and all sums over them are cumulative sums. Let P and Q be the sums of p and q over the
cut tokens, P' and Q' those over the raised ones. Then e^α = (Q − c)/P and e^β = (Q' + c)/P'. The divergence falls as c
and β rise and is convex in β, so Newton's method finds D between two neighbours.
"""

from __future__ import annotations

from math import log2

import torch
from torch import Tensor

MAX_UNGROUPED = 256
"""the largest vocabulary in which every token is a group of its own"""
_HALF, _WIDE = 64, 4
"""groups on either side of ρ = 0 in a larger vocabulary, each (|ρ| + ``_WIDE``)²/(``_WIDE``·``_HALF``) wide"""
_LEAST, _LARGEST = 1e-30, 1e25
"""the smallest e^β and the largest e^α"""
_STEPS = 4


def mentored(p: Tensor, q: Tensor, budget: float) -> Tensor:
    """Return π at each position. p, q: [...,V] distributions; ``budget``: D > 0 in nats. → [...,V]

    In a vocabulary beyond ``MAX_UNGROUPED``, tokens of nearly the same ρ form a group and are cut or raised together. π
    is still a distribution within the budget. A little of the budget may stay unused if cutting one more group would
    save more than remains to be saved.
    """
    p, q, shape = p.reshape(-1, p.shape[-1]), q.reshape(-1, q.shape[-1]), p.shape
    ratio = (q / p).log_().nan_to_num_(0.0)  # ρ, with the largest number for infinity
    if shape[-1] <= MAX_UNGROUPED:
        group, groups = ratio.argsort(-1).argsort(-1), shape[-1]
    else:
        scaled = ratio / ratio.abs().add_(_WIDE)  # ±1 if only one of the models writes the token
        group, groups = scaled.mul_(_HALF).long().add_(_HALF), 2 * _HALF + 1
    parts = torch.stack([p, q, p * ratio]).double()
    sums = parts.new_zeros(3, len(p), groups).scatter_add_(2, group.expand(3, -1, -1), parts)
    p_factor, q_factor = (share.to(p.dtype).gather(1, group) for share in _factors(sums, budget))
    return q_factor.mul_(q).addcmul_(p_factor, p).view(shape)


def _factors(sums: Tensor, budget: float) -> tuple[Tensor, Tensor]:
    """Return π's multiples of p and of q in each group: e^α and 0, e^β and 0, or 0 and 1.

    sums: of p, q and p·ρ of each group, by rising ρ, float64 [3,N,G] → [N,G] each
    """
    p, q, spared = sums
    spared = spared.clamp_min(-1e6)  # beyond any budget
    near = spared.sum(-1, keepdim=True) >= -budget  # π = q
    excluded = q.sub(p, alpha=_LARGEST).clamp_min(0).sum(-1, keepdim=True)  # π excludes what p excludes
    both = torch.stack([p.add(q, alpha=_LEAST), q.add(p, alpha=_LEAST)]).add_(1e-200)  # 1 : 1 for an empty group
    ratio = both[1] / both[0]
    over = ratio > 1
    beyond_p, beyond_q = torch.where(over, both.flip(-1).cumsum(-1).flip(-1), both.cumsum(-1))
    thresholds = beyond_q.addcmul(ratio, beyond_p, value=-1).abs()  # c(v)

    sorted_thresholds, order = thresholds.sort(-1)
    cut = both * over
    changed = torch.cat([cut, both - cut, spared[None]]).gather(2, order.expand(5, -1, -1)).cumsum(-1)
    cut_p, cut_q, raised_p, raised_q = changed[:4].clamp_min(_LEAST)  # P, Q, P', Q' of the first 1, 2 … G groups
    rest = changed[4, :, -1:] - changed[4]  # Σ p·ρ of the others
    left = sorted_thresholds.maximum(excluded)
    right = torch.cat([left[:, 1:], (cut_q - cut_p)[:, -1:]], 1)  # the last is the c at which π = p
    alpha = ((cut_q - right) / cut_p).clamp_min(1).log()
    high = ((raised_q + right) / raised_p).log()
    fits = (rest.addcmul(cut_p, alpha).addcmul(raised_p, high) >= -budget) & (right > left)
    fits[:, -1] = True  # always true, except for rounding
    index = fits.byte().argmax(-1, keepdim=True)
    steps = torch.stack([cut_p, cut_q, raised_p, raised_q, rest, sorted_thresholds, left, high])
    # [N,1] each
    cut_p, cut_q, raised_p, raised_q, rest, last, left, high = steps.gather(2, index.expand(8, -1, -1)).unbind()

    low = ((raised_q + left) / raised_p).log()
    raised, total, level = raised_p / cut_p, (cut_q + raised_q) / cut_p, (rest + budget) / cut_p
    steep = raised * (1 + 1e-12)  # the slope is zero at α = β = 0
    beta = low
    for _ in range(_STEPS + max(0, round(-log2(budget) / 2))):  # near π = p a step halves the distance
        handed = raised * beta.exp()
        upper = (total - handed).clamp_min(1)
        excess = (upper.log() + level).addcmul(raised, beta)
        beta = beta.addcdiv(excess, steep.addcdiv(handed, upper, value=-1), value=-1).clamp(low, high)
    lower = beta.exp()
    upper = total.addcmul(raised, lower, value=-1).clamp(1, _LARGEST)
    bound = (thresholds <= last) & ~near
    return torch.where(over, upper, lower) * bound, ~bound
