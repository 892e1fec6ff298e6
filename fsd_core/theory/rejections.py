"""Recursive rejection sampling without replacement: earlier rejections determine what can still be accepted.

After the rejection of x_1 … x_i, the remainder of p is p_{i+1} = norm((p_i − c_i q)₊), c_i = 1/(1 − q(x_1) − … −
q(x_{i−1})), and the next draft has the distribution c_{i+1} q without the rejected tokens. In the order of p/q, two
numbers determine all of it,

    p_i = (p − b_i q)₊ / A_i,    b_{i+1} = b_i + A_i c_i,    A_i = Σ (p − b_i q)₊,

so a path of rejections is evaluated by lookups in cumulative sums (derived for this program).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fsd_core.theory.distributions import Vector

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
