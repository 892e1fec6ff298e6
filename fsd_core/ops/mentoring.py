"""The distribution of mentored decoding: of all π with KL(p‖π) ≤ D, one that overlaps most with q.

With ρ = log(q/p), π(v) = p(v)·exp(clamp(ρ(v), β, α)) for the α ≥ 0 ≥ β at which π sums to one and KL(p‖π), which is
−Σ p·clamp(ρ, β, α), equals D (Tran-Thien 2023; his a is e^−α, his b is e^−β). What α cuts off the tokens with a larger
ρ, β gives to those with a smaller one. With the ρ sorted, all sums are differences of cumulative sums.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

TOLD_APART = 512
"""tokens that are told apart; the others count as one"""
_BETWEEN, _STEPS = 32, 4


def mentored(p: Tensor, q: Tensor, budget: float) -> Tensor:
    """π at each position. p, q: [...,V] distributions; ``budget``: D > 0 in nats. → [...,V]

    Of a larger vocabulary the ``TOLD_APART`` likeliest tokens of (p+q)/2 are told apart. The others count as one token
    and share its probability in proportion to p. So π is a distribution within the budget all the same; what is lost
    is acceptance of tokens that neither model writes often.
    """
    p, q, shape = p.reshape(-1, p.shape[-1]), q.reshape(-1, q.shape[-1]), p.shape
    near = torch.where(p > 0, p * (p.log() - q.log()), 0.0).sum(-1, dtype=torch.float64) <= budget
    if p.shape[1] <= TOLD_APART:
        distribution = _scaled(p.double(), q.double(), *_scales(p.double(), q.double(), budget))
    else:
        tokens = (p + q).topk(TOLD_APART, -1).indices
        others = p.scatter(1, tokens, 0)
        left_p, left_q = (x.sum(-1, keepdim=True, dtype=torch.float64) for x in (others, q.scatter(1, tokens, 0)))
        known_p, known_q = (x.gather(1, tokens).double() for x in (p, q))
        scales = _scales(torch.cat([known_p, left_p], 1), torch.cat([known_q, left_q], 1), budget)
        of_others = (_scaled(left_p, left_q, *scales) / left_p.clamp_min(1e-300)).to(p.dtype)
        distribution = (others * of_others).scatter(1, tokens, _scaled(known_p, known_q, *scales).to(p.dtype))
    return torch.where(near[:, None], q, distribution.to(q.dtype)).view(shape)


def _scaled(p: Tensor, q: Tensor, upper: Tensor, lower: Tensor) -> Tensor:
    return q.minimum(p * upper).maximum(p * lower)


def _scales(p: Tensor, q: Tensor, budget: float) -> tuple[Tensor, Tensor]:
    """e^α and e^β of each row. float64 [N,n] → [N,1] each"""
    ratio, order = (q.log() - p.log()).nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf).sort(-1)
    p, q = p.gather(1, order), q.gather(1, order)
    below_p, below_q, below_kl = (
        F.pad(part, (1, 0)).cumsum(-1) for part in (p, q, torch.where(ratio.isfinite(), p * ratio, 0.0))
    )  # of the first n tokens, [N,n+1]
    added = (ratio.exp() * below_p[:, :-1]).nan_to_num(nan=0.0, posinf=torch.inf) - below_q[:, :-1]
    added = added.cummax(-1).values  # what a floor at each ρ gives to the tokens below it; rising but for rounding

    def at(upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """KL(p‖π) for some α, its derivative by α, and the β that goes with it. [N,k] each"""
        first = torch.searchsorted(ratio, upper, right=True)
        above = below_p[:, -1:] - below_p.gather(1, first)
        cut = (below_q[:, -1:] - below_q.gather(1, first) - above * upper.exp()).clamp_min(0)
        last = torch.searchsorted(added, cut, right=True).clamp_min(1)
        under = below_p.gather(1, last)
        lower = ((cut + below_q.gather(1, last)) / under).log().clamp_max(0)
        between = below_kl.gather(1, first) - below_kl.gather(1, last)
        return -(upper * above + lower * under + between), above * ((upper - lower).exp() - 1), lower

    def narrowed(steps: Tensor) -> tuple[Tensor, Tensor]:
        """The last of some rising α that is within the budget, and the next; [N,n] → [N,1] each"""
        last = (at(steps)[0] <= budget).sum(-1, keepdim=True) - 1
        return steps.gather(1, last.clamp_min(0)), steps.gather(1, (last + 1).clamp_max(steps.shape[1] - 1))

    highest = torch.where(ratio.isfinite(), ratio, 0.0).amax(-1, keepdim=True).clamp_min(0)
    low, high = narrowed(F.pad(ratio.clamp_min(0).minimum(highest), (1, 0)))
    between = torch.linspace(0, 1, _BETWEEN + 1, dtype=p.dtype, device=p.device)
    for _ in range(2):
        low, high = narrowed(low + (high - low) * between)
    upper = (low + high) / 2
    for _ in range(_STEPS):
        kl, slope, _ = at(upper)
        low, high = torch.where(kl <= budget, upper, low), torch.where(kl <= budget, high, upper)
        better = upper - (kl - budget) / slope  # Newton's
        upper = torch.where((better >= low) & (better <= high), better, (low + high) / 2)
    return upper.exp(), at(upper)[2].exp()
