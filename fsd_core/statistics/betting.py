"""Whether the mean of values from 0 to 1 lies above a bound, decided as soon as they allow it.

One bets against "the mean is at most μ₀" at odds that would be fair if it were μ₀: a stake of the share c of one's
capital turns it into 1 + c·(x/μ₀ − 1) times as much with the next value x. Whatever is staked, capital that began at 1
ever reaches 1/α with a chance of at most α if the mean is μ₀ or less (Ville 1939), for any distribution of the values
and however often one looks (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting").
So one may stop at any moment, and go on with more prompts.

The stake is spread over several shares. How much each has to begin with may follow from earlier values of other
prompts, on which the one that earned most there counts most.
"""

from __future__ import annotations

import numpy as np

SHARES = np.array([0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99])
_EVENLY = 0.2
"""part of the capital that is spread evenly, whatever was earned before"""
_STEPS = 40


def stakes(earlier: np.ndarray, bound: float) -> np.ndarray:
    """What each of ``SHARES`` has to begin with, which sums to 1. earlier: float [n] in 0 … 1, of other prompts"""
    logs = _logs(earlier, bound)[:, -1]
    earned = np.exp(logs - logs.max())
    return _EVENLY / len(SHARES) + (1 - _EVENLY) * earned / earned.sum()


def capital(values: np.ndarray, bound: float, begun: np.ndarray) -> float:
    """The most capital that there was after any of the values, in their order. values: float [n] in 0 … 1; bound: μ₀"""
    return float((begun[:, None] * np.exp(_logs(values, bound))).sum(0).max())


def lacking(
    values: np.ndarray, earlier: np.ndarray, bound: float, begun: np.ndarray, level: float, most: int
) -> int | None:
    """After how many more values, ``most`` at most, the bet is won if they are as those so far are on average; ``None``
    where it is not. values, earlier: float [n], [m] in 0 … 1, those of the bet and others of their kind"""
    known = np.concatenate([earlier, values])
    each = _logs(known, bound)[:, -1:] / len(known)  # [shares, 1]
    ahead = _logs(values, bound)[:, -1:] + each * np.arange(1, most + 1)  # [shares, most]
    won = (begun[:, None] * np.exp(ahead)).sum(0) >= 1 / level
    return int(won.argmax()) + 1 if won.any() else None


def lower_bound(values: np.ndarray, begun: np.ndarray, level: float) -> float:
    """The largest μ₀ that the values refute at a level: the mean lies above it with a confidence of 1 − ``level``."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if capital(values, middle, begun) >= 1 / level else (low, middle)
    return low


def _logs(values: np.ndarray, bound: float) -> np.ndarray:
    """The logarithm of what one unit in each share has become after 0, 1, … n values. → [shares, n+1]"""
    grown = np.log1p(SHARES[:, None] * (values[None, :] / bound - 1))
    return np.concatenate([np.zeros((len(SHARES), 1)), grown.cumsum(1)], 1)
