"""How sure a figure is: intervals, paired comparison of two runs, and the Pareto front.

The unit of resampling is the prompt, never the token: tokens of one text depend
on each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

RESAMPLES = 2000


class Interval(NamedTuple):
    """Both ends of an interval, in the unit of its figure."""

    low: float
    high: float


@dataclass(frozen=True)
class PairedDifference:
    """Accuracy of ``a`` minus accuracy of ``b`` on the prompts that both have."""

    difference: float
    interval: Interval
    p_value: float
    """two-sided exact McNemar test of "neither is better"; 1 if they never disagree"""
    only_a: int
    """prompts that ``a`` alone solves"""
    only_b: int
    n: int
    """prompts that both have"""


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a proportion (Wilson 1927). Raises ``ValueError`` if ``n`` is 0."""
    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"Expected 0 <= successes <= n and n > 0, got {successes} of {n}.")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, spread = successes / n, z * z / n
    center = (rate + spread / 2) / (1 + spread)
    half = z * math.sqrt(rate * (1 - rate) / n + spread / (4 * n)) / (1 + spread)
    # At the ends the formula is exactly 0 and 1; rounding must not put the rate outside its own interval.
    low = 0.0 if successes == 0 else center - half
    high = 1.0 if successes == n else center + half
    return Interval(low, high)


def bootstrap_ratio(
    numerators: Sequence[float],
    denominators: Sequence[float],
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> Interval:
    """Percentile bootstrap of ``sum(numerators) / sum(denominators)``, both per prompt.

    Resamples whose denominators sum to 0 say nothing and are left out. Raises ``ValueError`` if all do, or
    if the lengths differ.
    """
    values = np.column_stack([np.asarray(numerators, float), np.asarray(denominators, float)])  # [n, 2]
    if not values[:, 1].any():
        raise ValueError("The ratio of sums has no interval: every denominator is 0.")
    counts = _resample(len(values), seed, resamples)  # [resamples, n]
    top, bottom = (counts @ values).T
    return _percentiles(top[bottom != 0] / bottom[bottom != 0], confidence)


def bootstrap_difference_of_ratios(
    table: np.ndarray, seed: int = 0, resamples: int = RESAMPLES, confidence: float = 0.95
) -> Interval:
    """Percentile bootstrap of ``Σa/Σb − Σc/Σd`` over rows (a, b, c, d), one per prompt, resampled together.

    Raises ``ValueError`` if b or d is 0 throughout.
    """
    values = np.asarray(table, float)
    if not values[:, 1].any() or not values[:, 3].any():
        raise ValueError("The ratio of sums has no interval: every denominator is 0.")
    a, b, c, d = (_resample(len(values), seed, resamples) @ values).T
    kept = (b != 0) & (d != 0)
    return _percentiles(a[kept] / b[kept] - c[kept] / d[kept], confidence)


def bootstrap_median(
    values: Sequence[float], seed: int = 0, resamples: int = RESAMPLES, confidence: float = 0.95
) -> Interval:
    """Percentile bootstrap of the median. Raises ``ValueError`` on no values."""
    array = np.asarray(values, float)
    if not array.size:
        raise ValueError("The median of no values has no interval.")
    draws = np.random.default_rng(seed).integers(array.size, size=(resamples, array.size))
    return _percentiles(np.median(array[draws], axis=1), confidence)


def paired_difference(
    a: Mapping[int, bool], b: Mapping[int, bool], seed: int = 0, resamples: int = RESAMPLES, confidence: float = 0.95
) -> PairedDifference:
    """Compares two runs prompt by prompt; the keys are positions of prompts, the values whether it was solved.

    The bootstrap knows only the disagreements it has seen: without any, its interval is (0, 0), which on few
    prompts is no proof of equality. Raises ``ValueError`` if the two share no prompt.
    """
    from scipy.stats import binomtest  # takes a second to import, and most callers need no test

    shared = sorted(a.keys() & b.keys())
    if not shared:
        raise ValueError("The two runs share no prompt, so they cannot be compared prompt by prompt.")
    only_a = sum(a[key] and not b[key] for key in shared)
    only_b = sum(b[key] and not a[key] for key in shared)
    n = len(shared)
    # A resample of the prompts is a multinomial draw of the three things that can happen on one.
    odds = np.array([only_a, only_b, n - only_a - only_b]) / n
    counts = np.random.default_rng(seed).multinomial(n, odds, size=resamples)
    return PairedDifference(
        difference=(only_a - only_b) / n,
        interval=_percentiles((counts[:, 0] - counts[:, 1]) / n, confidence),
        p_value=float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0,
        only_a=only_a,
        only_b=only_b,
        n=n,
    )


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points that no other beats, where more is better in both; by rising first coordinate.

    A point beats another if it is at least as good in both and better in one, so equal points stand together.
    Points with a NaN are left out.
    """
    known = [i for i, point in enumerate(points) if not any(math.isnan(value) for value in point)]
    front: list[int] = []
    best = -math.inf
    # From the right: within one x the highest comes first, and a point stands if it is higher than all right of it.
    for i in sorted(known, key=lambda i: (-points[i][0], -points[i][1])):
        if points[i][1] > best or (front and points[i] == points[front[-1]]):
            best = points[i][1]
            front.append(i)
    return front[::-1]


def _resample(n: int, seed: int, resamples: int) -> np.ndarray:
    """How often each of ``n`` prompts is drawn in each resample, [resamples, n]."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)


def _percentiles(values: np.ndarray, confidence: float) -> Interval:
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))
