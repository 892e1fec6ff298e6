"""Limits of multi-draft speculative decoding, computed without torch.

Distributions are arrays or tensors of shape [V] or [R,V]. :func:`fsd_core.rules.rates.acceptance_rate` computes what
verifiers reach.

The optimal acceptance rate of multi-draft speculative decoding.

Hu et al., "Towards Optimal Multi-draft Speculative Decoding", ICLR 2025 (arXiv 2502.18779). A verifier couples the
emitted token, which has the distribution p, with the n drafts, whose joint distribution is known. It accepts if the
token is one of the drafts. The best verifier accepts with probability

    α* = min over H ⊆ V of  P(H) + Pr[some draft outside H],    P(H) = Σ_H p,

the dual of an optimal transport problem. If drafts are sampled from q, a minimising H is a prefix of the tokens in
descending order of q/p.

Recursive rejection sampling without replacement: earlier rejections determine what can still be accepted.

After the rejection of x_1 … x_i, the remainder of p is p_{i+1} = norm((p_i − c_i q)₊), c_i = 1/(1 − q(x_1) − … −
q(x_{i−1})), and the next draft has the distribution c_{i+1} q without the rejected tokens. In the order of p/q, two
numbers determine all of it,

    p_i = (p − b_i q)₊ / A_i,    b_{i+1} = b_i + A_i c_i,    A_i = Σ (p − b_i q)₊,

so a path of rejections is evaluated by lookups in cumulative sums (derived for this program).

How many of a layer's drafts will be accepted, and so how many beams a layer can have.

Drafts are drawn from q with replacement and tested in turn against p. After a rejection the next one is tested against
norm((p − q)₊), after an acceptance against p again (Qin et al. 2025, "Dynamic-Width Speculative Beam Decoding", arXiv
2409.16560). Their program subtracts q twice in each step, which makes the widths too small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fsd_core.errors import Contradiction, Malformed, OutOfRange, UnknownName

DraftSampling = Literal["with_replacement", "without_replacement", "greedy"]
"""How the first tokens of several drafts are sampled: each from q; one after the other from the remainder of q; or the
likeliest of q, and one sampled from the others."""
DRAFT_SAMPLINGS: tuple[DraftSampling, ...] = get_args(DraftSampling)
MOST_DRAFTS = 8
"""largest number of drafts that bounds are measured and displayed for"""
SAMPLING_TITLES: dict[DraftSampling, str] = {
    "with_replacement": "with replacement",
    "without_replacement": "without replacement",
    "greedy": "greedy, the last sampled",
}


Vector = NDArray[Any]
_FAR_FROM_ONE = 2.0**-8  # allowed error of a sum; above the relative rounding error of bfloat16


def distributions(values: Any, name: str) -> Vector:
    """Return an array or tensor of probabilities as float64 [R,V], each row divided by its sum.

    Raises ``InvalidSetting`` for values that are not numbers, rows of different lengths, another shape, negative or
    infinite numbers, and rows far from a sum of 1.
    """
    if hasattr(values, "detach"):  # a tensor on any device
        values = values.detach().cpu().double().numpy()
    try:
        if np.asarray(values).dtype.kind not in "fiub":
            raise TypeError
        rows = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise Malformed(
            f"{name} is no array of numbers: expected [V], or [R,V] for R positions, with rows of one length."
        ) from None
    if rows.ndim not in (1, 2) or rows.shape[-1] == 0:
        raise Malformed(f"{name} has the shape {list(rows.shape)}: expected [V], or [R,V] for R positions.")
    rows = np.atleast_2d(rows)
    sums = rows.sum(-1, keepdims=True)
    if not np.all(np.isfinite(rows)) or rows.min(initial=0) < 0 or np.any(np.abs(sums - 1) > _FAR_FROM_ONE):
        raise OutOfRange(f"{name} is not a distribution: expected numbers of at least 0 that sum to 1 in each row.")
    return rows / sums


def for_each_row(target_probs: Any, draft_probs: Any, compute: Callable[[Vector, Vector], float]) -> Any:
    """Return ``compute(p, q)`` of two vectors [V]: a float for one position, float64 [R] for several.

    A single row of one argument goes with all rows of the other. Raises ``InvalidSetting``.
    """
    p, q = distributions(target_probs, "target_probs"), distributions(draft_probs, "draft_probs")
    is_single = np.ndim(target_probs) == 1 and np.ndim(draft_probs) == 1
    if p.shape[1] != q.shape[1] or (p.shape[0] != q.shape[0] and 1 not in (p.shape[0], q.shape[0])):
        raise Contradiction(
            f"target_probs and draft_probs do not fit: shapes {list(p.shape)} and {list(q.shape)}. Expected the same "
            "vocabulary, and as many positions."
        )
    results = [compute(*pair) for pair in zip(*np.broadcast_arrays(p, q), strict=True)]
    return float(results[0]) if is_single else np.array(results)


def once_in(chance: Vector, count: int) -> Vector:
    """Return 1 − (1 − a)^n: the chance that an event of probability a happens at least once in n trials.

    Keeps the digits of a small a.
    """
    certain = chance >= 1
    return np.where(certain, float(count > 0), -np.expm1(count * np.log1p(-np.where(certain, 0, chance))))


def check_drafts(num_drafts: int) -> None:
    """Raise ``InvalidSetting`` unless there is at least one draft."""
    if isinstance(num_drafts, bool) or not isinstance(num_drafts, int | np.integer) or num_drafts < 1:
        raise OutOfRange(f"num_drafts is {num_drafts!r}: expected a whole number of at least 1.")


def optimal_acceptance(target_probs: Any, draft_probs: Any, num_drafts: int, sampling: str) -> Any:
    """Return α* of ``num_drafts`` drafts per position: a float, or float64 [R].

    ``target_probs``, ``draft_probs``: p and q, arrays or tensors [V] or [R,V]. ``sampling``: how the drafts are
    sampled. ``with_replacement``: each from q. ``without_replacement``: one after the other from q without those
    already drawn (all of q's support if it has no more tokens). ``greedy``: the likeliest n − 1 tokens of q and one
    sampled from the others.

    Raises ``UnknownName`` for another sampling, and ``InvalidSetting`` for invalid distributions.
    """
    check_drafts(num_drafts)
    if sampling not in DRAFT_SAMPLINGS:
        raise UnknownName(f"There is no sampling '{sampling}': expected one of {', '.join(DRAFT_SAMPLINGS)}.")
    compute = {"with_replacement": _with, "without_replacement": _without, "greedy": greedy_acceptance}[sampling]
    return for_each_row(target_probs, draft_probs, lambda p, q: compute(p, q, int(num_drafts)))


def greedy_drafts(q: Vector, count: int) -> tuple[Vector, Vector]:
    """Return the ``count`` − 1 likeliest tokens, bool [V], and the distribution of the last draft, float64 [V].

    There are fewer tokens if q has no more; ties go to the first. The distribution is all zero if nothing is left to
    draw.
    """
    certain = np.zeros(len(q), dtype=bool)
    certain[np.argsort(-q, kind="stable")[: count - 1]] = True
    certain &= q > 0
    remainder = np.where(certain, 0, q)
    return certain, remainder / total if (total := remainder.sum()) > 0 else remainder


def greedy_acceptance(p: Vector, q: Vector, count: int) -> float:
    """Return P(S) + Σ_{x∉S} min(p, q'), with S the certain drafts and q' the distribution of the last."""
    certain, last = greedy_drafts(q, count)
    return float(p[certain].sum() + np.minimum(p, last)[~certain].sum())


def _in_order(p: Vector, q: Vector) -> tuple[Vector, Vector]:
    """Return both in descending order of q/p, without tokens that neither has."""
    support = (p > 0) | (q > 0)
    p, q = p[support], q[support]
    with np.errstate(divide="ignore", over="ignore"):
        order = np.argsort(p / q, kind="stable")
    return p[order], q[order]


def _best(p: Vector, missing: Vector) -> float:
    """Return the minimum over prefixes of P(H) + Pr[some draft outside H].

    p: [V] in order; missing: [V+1], the empty prefix first.
    """
    return float(min(1.0, (np.concatenate([[0], np.cumsum(p)]) + missing).min()))


def _outside(q: Vector) -> Vector:
    """Return q of all tokens outside each prefix, summed from the end so that small values keep their digits: [V+1]"""
    return np.minimum(np.concatenate([np.cumsum(q[::-1])[::-1], [0]]), 1.0)


def _with(p: Vector, q: Vector, count: int) -> float:
    """Return α* with replacement: Pr[all n drafts in H] = q(H)^n."""
    p, q = _in_order(p, q)
    return _best(p, once_in(_outside(q), count))


def _without(p: Vector, q: Vector, count: int) -> float:
    p, q = _in_order(p, q)
    return _best(p, missing_without_replacement(q, count))


_STEP = 0.25


def missing_without_replacement(q: Vector, count: int) -> Vector:
    """Return Pr[some of n drafts, drawn without replacement, lies outside the prefix] for all V+1 prefixes of q,
    float64 [V+1].

    The drafts are the first n arrivals of exponential races: token i arrives at a time of rate q_i. All of them are in
    H if n tokens of H have arrived before the first one outside, whose rate is r = q(V∖H). With A the n − 1 likeliest
    tokens, ρ = q(V∖A), w_i = e^{q_i t} − 1 and e_j the elementary symmetric sums,

        Pr[some outside] = ∫₀^∞ r e^{−ρt} Σ_i h_i(t) Σ_{j<n−i} e_j(w_x : x ∈ H∖A) dt,

    with h_i the probability that i tokens of A have arrived by t, all of them in H. For all prefixes at once the sums
    are n − 1 cumulative ones, and nothing in them grows beyond e^{ρt}. The integral is computed by the trapezoid rule
    after t = exp(x − e^{−x}) (Takahasi and Mori 1974), which covers decays of any rate with few nodes.
    """
    count = min(count, int(np.count_nonzero(q)))
    outside, inside = _outside(q), np.concatenate([[0], np.cumsum(q > 0)])
    if count == 1:
        return outside
    likeliest = np.sort(np.argsort(-q, kind="stable")[: count - 1])
    tail = q.copy()
    tail[likeliest] = 0
    rate = float(tail.sum())
    segments = [slice(a, b) for a, b in zip([0, *(likeliest + 1)], [*(likeliest + 1), len(q) + 1], strict=True)]
    missing = np.zeros(len(q) + 1)
    for x in np.arange(-3.8, np.log((45 - np.log(rate)) / rate) + _STEP, _STEP):
        t = np.exp(x - np.exp(-x))
        odds = np.expm1(tail * t)
        level = np.full(len(q) + 1, _STEP * t * (1 + np.exp(-x)) * np.exp(-rate * t))
        up_to = [level]  # sums of e_0 to e_j, by j
        for _ in range(count - 1):
            level = np.concatenate([[0.0], np.cumsum(odds * level[:-1])])
            up_to.append(up_to[-1] + level)
        for before, segment in enumerate(segments):
            for arrived, chance in enumerate(_arrivals(q[likeliest], t, before)):
                missing[segment] += chance * up_to[count - 1 - arrived][segment]
    missing = np.minimum(missing * outside, 1.0)
    missing[inside < count] = 1.0
    return np.where(outside > 0, missing, 0.0)


def _arrivals(rates: Vector, t: float, count: int) -> Vector:
    """Return the probabilities that 0, 1, … of the first ``count`` tokens and none of the others have arrived by t."""
    chances = np.array([np.exp(-t * rates[count:].sum())])
    for rate in rates[:count]:
        absent, arrived = np.append(chances, 0.0), np.insert(chances, 0, 0.0)
        chances = absent * np.exp(-rate * t) - arrived * np.expm1(-rate * t)
    return chances


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


MOST_PATHS = 2_000_000
"""largest number of paths times tokens to enumerate; beyond it, paths are sampled"""
POSITIONS_SAMPLED = 1024
_TINY = 1e-300


@dataclass(frozen=True)
class _Table:
    """p and q in ascending order of p/q where q > 0, and their sums from each token to the end, [V+1]."""

    p: Vector
    q: Vector
    ratio: Vector
    p_from: Vector
    q_from: Vector
    likeliest: Vector
    """up to 16 of the draft's likeliest tokens, int64"""
    unlikely: float
    """Σ q of the other tokens"""

    def above(self, ratio: Vector) -> tuple[Vector, Vector]:
        """Return Σ p and Σ q of the tokens with p/q beyond each of ``ratio``."""
        index = np.searchsorted(self.ratio, ratio, side="right")
        return self.p_from[index], self.q_from[index]


@dataclass
class _Paths:
    """Sequences of rejected tokens. weight, b, left (1 − Σ q of the rejected tokens): [N]; rejected: int64 [N,i]."""

    weight: Vector
    b: Vector
    left: Vector
    rejected: Vector


def _table(p: Vector, q: Vector) -> tuple[_Table, float]:
    """Return the table, and p of the tokens that are never drafted."""
    undrafted = float(p[q == 0].sum())
    p, q = p[q > 0], q[q > 0]
    order = np.argsort(p / q, kind="stable")
    p, q = p[order], q[order]
    p_from, q_from = (np.concatenate([np.cumsum(x[::-1])[::-1], [0.0]]) for x in (p, q))
    likeliest = np.argsort(-q, kind="stable")[:16]
    return _Table(p, q, p / q, p_from, q_from, likeliest, float(np.delete(q, likeliest).sum())), undrafted


def without_replacement(p: Vector, q: Vector, count: int, sampled: int = POSITIONS_SAMPLED) -> float:
    """Return the acceptance of ``count`` drafts, or of all of q's support if it has fewer tokens.

    ``sampled``: number of paths to sample if there are too many to enumerate.
    """
    table, undrafted = _table(p, q)
    count = min(count, len(table.q))
    paths = _Paths(np.ones(1), np.zeros(1), np.ones(1), np.zeros((1, 0), dtype=np.int64))
    rng, accepted = np.random.default_rng(0), 0.0
    for step in range(count):
        p_above, q_above = table.above(paths.b)
        remainder = p_above + undrafted - paths.b * q_above  # A
        next_b = paths.b + remainder / paths.left
        p_beyond, q_beyond = table.above(next_b)
        chance = (q_beyond / paths.left) + ((p_above - p_beyond) - paths.b * (q_above - q_beyond)) / np.maximum(
            remainder, _TINY
        )
        accepted += float((paths.weight * np.clip(chance, 0, 1)).sum())
        if step + 1 == count:
            break
        if len(paths.weight) * len(table.q) <= MOST_PATHS:
            paths = _extend_all(table, paths, remainder, next_b)
        else:
            paths = _extend_sampled(table, paths, remainder, next_b, rng, sampled)
        if not len(paths.weight):
            break
    return accepted


def _rejection(table: _Table, paths: _Paths, remainder: Vector, next_b: Vector, tokens: Vector) -> Vector:
    """Return the probability that each path drafts and rejects each token: c q − min(c q, p_i).

    tokens: int64 [N,T] → [N,T]
    """
    q, p = table.q[tokens], table.p[tokens]
    drafted = q / paths.left[:, None]
    accepted = np.maximum(p - paths.b[:, None] * q, 0) / np.maximum(remainder[:, None], _TINY)
    return np.where(table.ratio[tokens] < next_b[:, None], np.maximum(drafted - accepted, 0), 0)


def _extend_all(table: _Table, paths: _Paths, remainder: Vector, next_b: Vector) -> _Paths:
    """Return all paths longer by one rejection."""
    tokens = np.broadcast_to(np.arange(len(table.q)), (len(paths.weight), len(table.q)))
    chance = _rejection(table, paths, remainder, next_b, tokens)
    np.put_along_axis(chance, paths.rejected, 0, 1)
    row, token = np.nonzero(chance)
    return _extended(table, paths, row, token, paths.weight[row] * chance[row, token], next_b)


def _extend_sampled(
    table: _Table, paths: _Paths, remainder: Vector, next_b: Vector, rng: np.random.Generator, sampled: int
) -> _Paths:
    """Return a sample of the paths longer by one rejection.

    Each path gets as many continuations as its weight is worth, drawn with the probabilities of the rejections.
    """
    total = paths.weight.sum()
    row = rng.choice(len(paths.weight), size=sampled, p=paths.weight / total)
    token = np.empty(sampled, dtype=np.int64)
    missed = np.zeros(len(paths.weight))
    for path in np.unique(row):
        single = _Paths(*(part[path : path + 1] for part in (paths.weight, paths.b, paths.left, paths.rejected)))
        chance = _rejection(
            table, single, remainder[path : path + 1], next_b[path : path + 1], np.arange(len(table.q))[None]
        )[0]
        chance[paths.rejected[path]] = 0
        missed[path] = chance.sum()
        if missed[path] > 0:
            token[row == path] = rng.choice(len(chance), size=int((row == path).sum()), p=chance / missed[path])
    weight = total * missed[row] / sampled
    possible = weight > 0
    return _extended(table, paths, row[possible], token[possible], weight[possible], next_b)


def _extended(table: _Table, paths: _Paths, row: Vector, token: Vector, weight: Vector, next_b: Vector) -> _Paths:
    drawn = np.concatenate([paths.rejected[row], token[:, None]], 1)
    # Summed, not subtracted from 1, so that a small remainder keeps its digits.
    remaining = np.maximum(table.unlikely - np.where(np.isin(drawn, table.likeliest), 0, table.q[drawn]).sum(1), 0)
    for x in table.likeliest:
        remaining += np.where((drawn == x).any(1), 0, table.q[x])
    return _Paths(weight, next_b[row], np.maximum(remaining, _TINY), drawn)


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
