"""The optimal acceptance rate of multi-draft speculative decoding.

Hu et al., "Towards Optimal Multi-draft Speculative Decoding", ICLR 2025 (arXiv 2502.18779). A verifier couples the
emitted token, which has the distribution p, with the n drafts, whose joint distribution is known. It accepts if the
token is one of the drafts. The best verifier accepts with probability

    α* = min over H ⊆ V of  P(H) + Pr[some draft outside H],    P(H) = Σ_H p,

the dual of an optimal transport problem. If drafts are sampled from q, a minimising H is a prefix of the tokens in
descending order of q/p.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fsd_core.errors import UnknownName
from fsd_core.theory.distributions import Vector, check_drafts, for_each_row, once_in
from fsd_core.theory.samplings import DRAFT_SAMPLINGS


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
