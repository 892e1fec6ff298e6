"""Prompts that depend on each other, and how much less they say than as many that stand alone.

A cluster is a conversation, or the prompts of one template or document. Clusters are taken to be drawn independently of
each other, and prompts of one cluster may depend on each other in any way. Sums over clusters then take the place of
prompts. Counts are divided by the design effect (Kish 1965; for tests Rao and Scott 1992), which also pays for the
uncertainty of its own estimate by Student's t (Korn and Graubard 1998). ``tests/unit/test_clusters.py`` simulates both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from fsd_core.statistics.intervals import FEWEST_PROMPTS, Interval, wilson

_CONFIDENCE = 0.975
_SIGNIFICANT_DIGITS = 1e-9


def numbered(clusters: Iterable[Hashable]) -> np.ndarray:
    """Return the cluster of each prompt as a number from 0, in the order of first appearance. → int [n]"""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], int)


def by_group(positions: Iterable[int], groups: Mapping[int, str]) -> np.ndarray:
    """Return the cluster of each prompt: its group, by position, or itself if it has none. → int [n], numbers from 0"""
    return numbered(groups.get(position, position) for position in positions)


def sums(values: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Return the sums of each cluster. values: [n, …]; clusters: int [n], numbers from 0 → [G, …]"""
    result = np.zeros((int(clusters.max(initial=-1)) + 1, *values.shape[1:]))
    np.add.at(result, clusters, values)
    return result


def design_effect(values: np.ndarray, clusters: np.ndarray) -> float:
    """Return how many prompts of these clusters say as much of the mean as one that stands alone, from 1.

    It is the variance of the mean between clusters over that between prompts, times the square of Student's quantile
    over the normal one. It is at most Σ nᵍ²/n, that of clusters whose prompts are all alike, which is also taken where
    fewer than three clusters differ from the mean. values: float [n]; clusters: int [n], numbers from 0
    """
    from scipy.special import ndtri, stdtrit  # scipy.stats takes a second to import

    n, sizes = len(values), np.bincount(clusters) if len(values) else np.zeros(0)
    if len(sizes) == n:
        return 1.0
    alike = float((sizes**2).sum() / n)
    residuals = values - values.mean()
    between = sums(residuals, clusters) ** 2
    scale = float((residuals**2).sum())
    distinct = sums(np.abs(values - np.median(values)), clusters) > _SIGNIFICANT_DIGITS
    if scale <= _SIGNIFICANT_DIGITS or distinct.sum() < FEWEST_PROMPTS:
        return alike
    groups = len(sizes)
    effective = float(between.sum() ** 2 / (between**2).sum()) if between.any() else 1.0
    freedom = max(1.0, min(groups, 2 * effective) - 1)
    ratio = groups / (groups - 1) * float(between.sum()) / (scale * n / (n - 1))
    penalty = (float(stdtrit(freedom, _CONFIDENCE)) / float(ndtri(_CONFIDENCE))) ** 2
    return min(max(1.0, ratio * penalty), alike)


def clustered_wilson(hits: Sequence[bool], clusters: np.ndarray, confidence: float = 0.95) -> Interval:
    """Return :func:`wilson` of a share of prompts in clusters: of as many prompts as say the same alone.

    Both ends are those of the less favourable whole number of hits. Raises ``ValueError`` for no prompts.
    """
    values = np.asarray(hits, float)
    effect = design_effect(values, clusters)
    if effect == 1.0:
        return wilson(int(values.sum()), len(values), confidence)
    n = max(1, int(len(values) / effect))
    hit = float(values.mean()) * n
    low = wilson(int(np.floor(hit + _SIGNIFICANT_DIGITS)), n, confidence).low
    return Interval(low, wilson(int(np.ceil(hit - _SIGNIFICANT_DIGITS)), n, confidence).high)


def sign_flip(totals: Sequence[int]) -> tuple[float, float]:
    """Return the chances of a sum as low as that of ``totals``, and of one as far from 0, if each sign were a coin's.

    This is the exact permutation test of clusters whose totals are symmetric around 0. If all totals are 1 or −1 it is
    McNemar's exact test, one- and two-sided.
    """
    sizes = [abs(total) for total in totals if total]
    most = sum(sizes)
    chances = np.zeros(2 * most + 1)  # of each sum from −most
    chances[most] = 1.0
    for size in sizes:
        chances = (np.roll(chances, size) + np.roll(chances, -size)) / 2
    observed = sum(totals)
    places = np.arange(-most, most + 1)
    lower = float(chances[places <= observed].sum())
    return min(1.0, lower), min(1.0, float(chances[np.abs(places) >= abs(observed)].sum()))
