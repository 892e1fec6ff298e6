"""The layers of beams: the joint law over beams and tokens, and which drafts of a layer become beams.

Beam sampling draws a layer's W beams independently, with replacement, from the joint law. Drafts drawn from another law
q are tested in turn, and what they leave empty is sampled, so that the W ordered beams still are independent samples of
p: the first by recursive rejection, and after each acceptance anew. That holds because drafts are drawn with
replacement, and because the width is fixed before they are looked at: a layer that fails is filled to the same width.
After Qin et al. 2025 (arXiv 2409.16560), whose program does neither.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fsd_core.ops.sampling import draw
from fsd_core.rules.base import passes, residual


def joint_law(log_weights: Tensor, rows: Tensor) -> Tensor:
    """Return norm(exp(L_b) · p(v | b)) over the pairs (b, v), in the order b·V + v.

    log_weights: float64 [B], −inf for a beam of weight 0, not all −inf. rows: [B,V]. Returns float64 [B·V].
    """
    law = (log_weights - log_weights.max()).exp()[:, None] * rows.double()
    return (law / law.sum()).flatten()


@dataclass(frozen=True, slots=True)
class JudgedLayer:
    """The beams of a layer, for T trials. W: the largest width."""

    atoms: Tensor
    """int64 [T,W] in order, accepted drafts first; −1 behind a trial's own width"""
    drafts: Tensor
    """int64 [T,W], the index of the draft that was accepted; −1 for a sampled atom"""
    accepted: Tensor
    """int64 [T]; a layer passes if it is the width"""


def judge_layer(p: Tensor, q: Tensor, drafts: Tensor, widths: Tensor, tests: Tensor, fills: Tensor) -> JudgedLayer:
    """Test each draft x in turn while beams are missing: accept iff u·q(x) < cur(x).

    cur is p at first and after an acceptance, and norm((cur − q)₊) after a rejection. What drafts leave empty is filled
    with one sample of cur and then samples of p. p, q: float64 [T,A]. drafts: int64 [T,M], drawn from q with
    replacement. widths: int64 [T], fixed before. tests: float64 [T,M] and fills: float64 [T,W], in [0, 1).
    """
    trials, most = fills.shape
    row = torch.arange(trials, device=p.device)
    atoms, origins = drafts.new_full((trials, most + 1), -1), drafts.new_full((trials, most + 1), -1)
    accepted, current = widths.new_zeros(trials), p
    for i in range(drafts.shape[1]):
        x, is_open = drafts[:, i], accepted < widths
        kept = passes(current[row, x], q[row, x], tests[:, i]) & is_open
        slot = accepted.where(kept, most)  # the last column takes what is not kept
        atoms[row, slot], origins[row, slot] = x, i
        accepted = accepted + kept
        left = residual(current, q)
        left = left / left.sum(-1, keepdim=True)
        current = p.where(kept[:, None], left.where(is_open[:, None], current))
    for slot in range(int(accepted.min()), most):
        weights = current.where((accepted == slot)[:, None], p)
        is_filled = (slot >= accepted) & (slot < widths)
        atoms[:, slot] = draw(weights, fills[:, slot]).where(is_filled, atoms[:, slot])
    return JudgedLayer(atoms[:, :most], origins[:, :most], accepted)
