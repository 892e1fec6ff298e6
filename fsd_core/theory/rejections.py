"""Recursive rejection sampling without replacement: what has been rejected decides what can still be accepted.

After the rejection of x_1 … x_i the rest of p is p_{i+1} = norm((p_i − c_i q)₊), c_i = 1/(1 − q(x_1) − … − q(x_{i−1})),
and the next draft has the distribution c_{i+1} q without them. In the order of p/q, two numbers give all of it,

    p_i = (p − b_i q)₊ / A_i,    b_{i+1} = b_i + A_i c_i,    A_i = Σ (p − b_i q)₊,

so that a path of rejections is judged by lookups in cumulative sums (worked out for this program).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fsd_core.theory.distributions import Vector

MOST_PATHS = 2_000_000
"""paths times tokens that are gone through one by one; where there are more, paths are sampled"""
POSITIONS_SAMPLED = 1024
_NOTHING = 1e-300


@dataclass(frozen=True)
class _Table:
    """p and q in ascending order of p/q, where q > 0; their sums from each token to the end, [V+1]."""

    p: Vector
    q: Vector
    ratio: Vector
    p_from: Vector
    q_from: Vector
    likeliest: Vector
    """up to 16 of the draft's likeliest tokens, int64"""
    unlikely: float
    """Σ q of the others"""

    def above(self, ratio: Vector) -> tuple[Vector, Vector]:
        """Σ p and Σ q of the tokens with p/q beyond each of ``ratio``."""
        at = np.searchsorted(self.ratio, ratio, side="right")
        return self.p_from[at], self.q_from[at]


@dataclass
class _Paths:
    """Sequences of rejected tokens. weight, b, left (1 − the q of what was rejected): [N]; drawn: int64 [N,i]."""

    weight: Vector
    b: Vector
    left: Vector
    drawn: Vector


def _table(p: Vector, q: Vector) -> tuple[_Table, float]:
    """The table, and p of the tokens that are never drafted."""
    never = float(p[q == 0].sum())
    p, q = p[q > 0], q[q > 0]
    order = np.argsort(p / q, kind="stable")
    p, q = p[order], q[order]
    p_from, q_from = (np.concatenate([np.cumsum(x[::-1])[::-1], [0.0]]) for x in (p, q))
    likeliest = np.argsort(-q, kind="stable")[:16]
    return _Table(p, q, p / q, p_from, q_from, likeliest, float(np.delete(q, likeliest).sum())), never


def without_replacement(p: Vector, q: Vector, count: int, sampled: int = POSITIONS_SAMPLED) -> float:
    """The acceptance of ``count`` drafts, all of q's support if it has fewer tokens. ``sampled``: how many paths are
    drawn where there are too many to go through."""
    table, never = _table(p, q)
    count = min(count, len(table.q))
    paths = _Paths(np.ones(1), np.zeros(1), np.ones(1), np.zeros((1, 0), dtype=np.int64))
    rng, accepted = np.random.default_rng(0), 0.0
    for drawn in range(count):
        p_above, q_above = table.above(paths.b)
        rest = p_above + never - paths.b * q_above  # A
        after = paths.b + rest / paths.left
        p_beyond, q_beyond = table.above(after)
        kept = (q_beyond / paths.left) + ((p_above - p_beyond) - paths.b * (q_above - q_beyond)) / np.maximum(
            rest, _NOTHING
        )
        accepted += float((paths.weight * np.clip(kept, 0, 1)).sum())
        if drawn + 1 == count:
            break
        if len(paths.weight) * len(table.q) <= MOST_PATHS:
            paths = _every(table, paths, rest, after)
        else:
            paths = _some(table, paths, rest, after, rng, sampled)
        if not len(paths.weight):
            break
    return accepted


def _rejection(table: _Table, paths: _Paths, rest: Vector, after: Vector, tokens: Vector) -> Vector:
    """Probability that each path drafts and rejects each token: c q − min(c q, p_i). tokens: int64 [N,T] → [N,T]"""
    q, p = table.q[tokens], table.p[tokens]
    drafted = q / paths.left[:, None]
    kept = np.maximum(p - paths.b[:, None] * q, 0) / np.maximum(rest[:, None], _NOTHING)
    return np.where(table.ratio[tokens] < after[:, None], np.maximum(drafted - kept, 0), 0)


def _every(table: _Table, paths: _Paths, rest: Vector, after: Vector) -> _Paths:
    """All paths that are longer by one."""
    tokens = np.broadcast_to(np.arange(len(table.q)), (len(paths.weight), len(table.q)))
    chance = _rejection(table, paths, rest, after, tokens)
    np.put_along_axis(chance, paths.drawn, 0, 1)
    row, token = np.nonzero(chance)
    return _longer(table, paths, row, token, paths.weight[row] * chance[row, token], after)


def _some(table: _Table, paths: _Paths, rest: Vector, after: Vector, rng: np.random.Generator, sampled: int) -> _Paths:
    """A sample of them: of each path as many continuations as its weight is worth, drawn as the rejections are."""
    total = paths.weight.sum()
    row = rng.choice(len(paths.weight), size=sampled, p=paths.weight / total)
    token = np.empty(sampled, dtype=np.int64)
    missed = np.zeros(len(paths.weight))
    for path in np.unique(row):
        one = _Paths(*(part[path : path + 1] for part in (paths.weight, paths.b, paths.left, paths.drawn)))
        chance = _rejection(table, one, rest[path : path + 1], after[path : path + 1], np.arange(len(table.q))[None])[0]
        chance[paths.drawn[path]] = 0
        missed[path] = chance.sum()
        if missed[path] > 0:
            token[row == path] = rng.choice(len(chance), size=int((row == path).sum()), p=chance / missed[path])
    weight = total * missed[row] / sampled
    some = weight > 0
    return _longer(table, paths, row[some], token[some], weight[some], after)


def _longer(table: _Table, paths: _Paths, row: Vector, token: Vector, weight: Vector, after: Vector) -> _Paths:
    drawn = np.concatenate([paths.drawn[row], token[:, None]], 1)
    # Added up, not subtracted from 1, so that what the likeliest tokens leave keeps its digits.
    left = np.maximum(table.unlikely - np.where(np.isin(drawn, table.likeliest), 0, table.q[drawn]).sum(1), 0)
    for x in table.likeliest:
        left += np.where((drawn == x).any(1), 0, table.q[x])
    return _Paths(weight, after[row], np.maximum(left, _NOTHING), drawn)
