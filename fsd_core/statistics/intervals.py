"""Intervals of shares and medians, and the Pareto front.

Intervals of ratios are in ``ratios``, of differences between two runs in ``paired``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

FEWEST_PROMPTS = 3
"""prompts below which no interval of a ratio or a median is displayed"""
_FEWEST_OF_ANY_DISTRIBUTION = 6


class Interval(NamedTuple):
    """Both ends of an interval, in the unit of its figure."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A value with the ends of its 95 % interval, which are ``None`` if unknown."""

    value: float
    low: float | None = None
    high: float | None = None


def keyed(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    """Return a figure as stored: as ``name``, its ends as ``name_low`` and ``name_high``; ``None`` for no figure."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), estimate or (None, None, None), strict=True))


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval of a proportion (Wilson 1927), with a correction for continuity.

    Without the correction it covers only 83 % at some shares of few prompts. Raises ``ValueError`` for impossible
    counts, such as an ``n`` of 0.
    """
    from scipy.stats import binomtest  # takes a second to import, and most callers need none

    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"Expected 0 <= successes <= n and n > 0, got {successes} of {n}.")
    result = binomtest(successes, n).proportion_ci(confidence, method="wilsoncc")
    return Interval(float(result.low), float(result.high))


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the interval of the median of positive values, such as ratios; ``None`` below three of them.

    For six or more it lies between two of the values, whatever their distribution (scipy's ``quantile_test``). No two
    of three to five values reach 95 %. For those it is Student's t on the logarithms, widened by √(π/2), the factor by
    which the median of normal values varies more than their mean. Raises ``ValueError`` for no values.
    """
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    array = np.asarray(values, float)
    if not array.size:
        raise ValueError("The median of no values has no interval.")
    if array.size < FEWEST_PROMPTS:
        return None
    if array.size < _FEWEST_OF_ANY_DISTRIBUTION:
        logs = np.log(array)
        half = stdtrit(array.size - 1, (1 + confidence) / 2) * logs.std(ddof=1) * math.sqrt(math.pi / 2 / array.size)
        middle = np.median(logs)
        return Interval(math.exp(middle - half), math.exp(middle + half))
    from scipy.stats import quantile_test

    low, high = quantile_test(array, p=0.5).confidence_interval(confidence)
    return Interval(float(low), float(high))


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points that no other beats, where more is better in both; by rising first coordinate.

    A point beats another if it is at least as good in both and better in one, so equal points stay together. Points
    with a NaN are left out.
    """
    valid = [i for i, point in enumerate(points) if not any(math.isnan(value) for value in point)]
    front: list[int] = []
    best = -math.inf
    # From the right: within one x the highest comes first. A point is kept if it is higher than all to its right.
    for i in sorted(valid, key=lambda i: (-points[i][0], -points[i][1])):
        if points[i][1] > best or (front and points[i] == points[front[-1]]):
            best = points[i][1]
            front.append(i)
    return front[::-1]
