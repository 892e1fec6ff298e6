"""The optimum as an optimal transport problem, solved by a linear program: the reference for small V."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np

from fsd_core.errors import UnknownName
from fsd_core.theory.distributions import Vector
from fsd_core.theory.optimum import greedy_drafts
from fsd_core.theory.samplings import DRAFT_SAMPLINGS

Joint = dict[tuple[int, ...], float]
"""drafts in sampling order → their probability"""


def joint_distribution(q: Vector, count: int, sampling: str) -> Joint:
    """Return the joint distribution of ``count`` drafts from q [V]; see ``theory.optimum.optimal_acceptance``.

    Raises ``UnknownName``.
    """
    if sampling not in DRAFT_SAMPLINGS:
        raise UnknownName(f"There is no sampling '{sampling}': expected one of {', '.join(DRAFT_SAMPLINGS)}.")
    if sampling == "with_replacement":
        drafts = {x: float(np.prod(q[list(x)])) for x in product(range(len(q)), repeat=count)}
    elif sampling == "without_replacement":
        support = np.flatnonzero(q)
        drafts = {x: _ordered_probability(q, x) for x in permutations(support.tolist(), min(count, len(support)))}
    else:
        certain, last = greedy_drafts(q, count)
        first = tuple(np.flatnonzero(certain).tolist())
        drafts = {(*first, x): float(last[x]) for x in np.flatnonzero(last).tolist()} or {first: 1.0}
    return {x: chance for x, chance in drafts.items() if chance > 0}


def _ordered_probability(q: Vector, drafts: tuple[int, ...]) -> float:
    """Return Π_j q(x_j) / (1 − q(x_1) − … − q(x_{j−1})), each denominator summed over the remaining tokens."""
    remaining, chance = q.copy(), 1.0
    for x in drafts:
        chance *= remaining[x] / remaining.sum()
        remaining[x] = 0
    return chance


def optimal_coupling(p: Vector, joint: Joint) -> tuple[float, dict[tuple[int, ...], Vector]]:
    """Return the coupling of a token from p [V] with drafts from ``joint`` that makes it most often one of them.

    Returns that probability, and for each outcome of the drafts the joint weight of every token, [V]. The program has
    |V|·|outcomes| unknowns, so it is for small V only.
    """
    from scipy.optimize import linprog  # half a second to import, and most callers need none
    from scipy.sparse import coo_array

    outcomes = list(joint)
    draft_probs, p = np.array([joint[x] for x in outcomes]), p / p.sum()
    row = np.repeat(np.arange(len(outcomes)), [len(set(x)) for x in outcomes])
    token = np.concatenate([sorted(set(x)) for x in outcomes]).astype(int)
    # Only accepted mass is planned, within both marginals. The remaining mass is paired arbitrarily.
    column = np.tile(np.arange(len(row)), 2)
    size = len(outcomes) + len(p)
    constraints = coo_array(
        (np.ones(2 * len(row)), (np.concatenate([row, len(outcomes) + token]), column)), (size, len(row))
    )
    bounds = np.concatenate([draft_probs / draft_probs.sum(), p])
    solution = linprog(-np.ones(len(row)), A_ub=constraints.tocsr(), b_ub=bounds, method="highs")
    weights = np.zeros((len(outcomes), len(p)))
    weights[row, token] = np.maximum(solution.x, 0)
    rows, columns = np.maximum(bounds[: len(outcomes)] - weights.sum(1), 0), np.maximum(p - weights.sum(0), 0)
    if (remaining := columns.sum()) > 0:
        weights += np.outer(rows, columns) / remaining
    return float(-solution.fun), dict(zip(outcomes, weights, strict=True))
