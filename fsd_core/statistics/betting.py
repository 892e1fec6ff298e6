"""Sequential test whether the mean of values from 0 to 1 lies above a bound, decided as soon as the values allow.

One bets against "the mean is at most μ₀" at odds that would be fair if it were μ₀. Staking the share c multiplies the
capital by 1 + c·(x/μ₀ − 1) at the next value x. If the mean is μ₀ or less, capital that starts at 1 ever reaches 1/α
with a chance of at most α (Ville 1939). This holds for any stakes, any distribution of the values and any number of
looks (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting"). So one may stop at any
moment, or continue with more prompts.

Prompts that depend on each other are one value: with at most m prompts in a cluster, that is μ₀ + Σ(x − μ₀)/m over its
prompts. It lies in 0 … 1 as well, and its mean is at most μ₀ if that of the prompts is.

The stake is spread over several shares. Their initial capital may depend on earlier values of other prompts: the share
that earned most there counts most.
"""

from __future__ import annotations

import numpy as np

from fsd_core.statistics.clusters import sums

LEVEL = 0.05
"""the chance of an error that all bets of one search share"""
SHARES = np.array([0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99])
_EVENLY = 0.2
"""part of the capital that is spread evenly, regardless of earlier earnings"""
_STEPS = 40


def together(values: np.ndarray, clusters: np.ndarray, most: int, bound: float) -> np.ndarray:
    """Return one value for each cluster, whose prompts may depend on each other. → float [G] in 0 … 1

    values: float [n] in 0 … 1; clusters: int [n], numbers from 0; most: prompts of the largest cluster; bound: μ₀
    """
    return values if most == 1 else bound + sums(values - bound, clusters) / most


def stakes(earlier: np.ndarray, bound: float) -> np.ndarray:
    """Return the initial capital of each of ``SHARES``, summing to 1. earlier: float [n] in 0 … 1, of other prompts"""
    logs = _log_capital(earlier, bound)[:, -1]
    earned = np.exp(logs - logs.max())
    return _EVENLY / len(SHARES) + (1 - _EVENLY) * earned / earned.sum()


def capital(values: np.ndarray, bound: float, stakes: np.ndarray) -> float:
    """Return the highest capital after any of the values, in their order. values: float [n] in 0 … 1; bound: μ₀"""
    return float((stakes[:, None] * np.exp(_log_capital(values, bound))).sum(0).max())


def lacking(
    values: np.ndarray, earlier: np.ndarray, bound: float, stakes: np.ndarray, level: float, most: int
) -> int | None:
    """Return how many more values, ``most`` at most, win the bet if they equal those so far on average; else ``None``.

    values, earlier: float [n], [m] in 0 … 1, those of the bet and others of their kind.
    """
    pooled = np.concatenate([earlier, values])
    growth = _log_capital(pooled, bound)[:, -1:] / len(pooled)  # [shares, 1]
    forecast = _log_capital(values, bound)[:, -1:] + growth * np.arange(1, most + 1)  # [shares, most]
    won = (stakes[:, None] * np.exp(forecast)).sum(0) >= 1 / level
    return int(won.argmax()) + 1 if won.any() else None


def fewest(value: float, bound: float, stakes: np.ndarray, level: float, most: int) -> int:
    """Return how many values, all alike, win the bet; ``most`` if so many do not."""
    growth = np.log1p(SHARES * (value / bound - 1))
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        with np.errstate(over="ignore"):
            won = float((stakes * np.exp(growth * middle)).sum()) >= 1 / level
        low, high = (low, middle) if won else (middle, high)
    return high


def lower_bound(
    values: np.ndarray, stakes: np.ndarray, level: float, clusters: np.ndarray | None = None, most: int = 1
) -> float:
    """Return the largest μ₀ that the values refute: the mean lies above it with a confidence of 1 − ``level``.

    Values of one cluster are taken :func:`together`; without clusters each stands alone.
    """
    clusters = np.arange(len(values)) if clusters is None else clusters
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if capital(together(values, clusters, most, middle), middle, stakes) >= 1 / level
            else (low, middle)
        )
    return low


def _log_capital(values: np.ndarray, bound: float) -> np.ndarray:
    """Return the logarithm of one unit in each share after 0, 1, … n values. → [shares, n+1]"""
    growth = np.log1p(SHARES[:, None] * (values[None, :] / bound - 1))
    return np.concatenate([np.zeros((len(SHARES), 1)), growth.cumsum(1)], 1)
