"""How many of a layer's drafts will be accepted, and so how many beams a layer can have.

Drafts are drawn from q with replacement and tested in turn against p. After a rejection the next one is tested against
norm((p − q)₊), after an acceptance against p again (Qin et al. 2025, "Dynamic-Width Speculative Beam Decoding", arXiv
2409.16560). Their program subtracts q twice in each step, which makes the widths too small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fsd_core.theory.distributions import Vector

_TOLERANCE = 1e-12
"""error allowed of a sum of chances that meets the confidence exactly"""


def rejected_shares(p: Any, q: Any, count: int) -> list[Any]:
    """Return 1 − α_i for i = 1 … ``count``: the chance that a draft is rejected after i − 1 others were.

    1 − α_i = Σ (p_i − q)₊; p_1 = p, p_{i+1} = norm((p_i − q)₊). Where a residual vanishes, it stays all zero. ``p``,
    ``q``: arrays or tensors [A] that sum to 1.
    """
    shares = []
    for _ in range(count):
        residual = (p - q).clip(0)
        shares.append(residual.sum())
        p = residual / (shares[-1] + (shares[-1] <= 0))
    return shares


def acceptance_counts(rejected: Sequence[float]) -> Vector:
    """Return the chance that k of M drafts are accepted, for k = 0 … M. ``rejected``: :func:`rejected_shares`, M.

    ρ_m = Π_{j≤m} (1 − α_j) and β_i = α_i ρ_{i−1} give P[m][0] = ρ_m and P[m][k] = Σ_{i=1..m} β_i P[m−i][k−1].
    """
    count = len(rejected)
    none = np.concatenate([[1.0], np.cumprod(rejected)])
    first = (1 - np.asarray(rejected)) * none[:-1]
    chances = np.zeros((count + 1, count + 1))
    chances[:, 0] = none
    for drafts in range(1, count + 1):
        for accepted in range(1, drafts + 1):
            chances[drafts, accepted] = first[:drafts] @ chances[drafts - 1 :: -1, accepted - 1][:drafts]
    return chances[count]


def layer_width(chances: Vector, confidence: float, least: int, most: int) -> int:
    """Return the largest number of beams that drafts fill with at least this chance, within ``least`` … ``most``.

    ``chances``: :func:`acceptance_counts`.
    """
    at_least = np.cumsum(chances[::-1])[::-1]
    return min(most, max(least, int(np.flatnonzero(at_least >= confidence - _TOLERANCE)[-1])))
