"""Shares of solved prompts of two runs, compared on the prompts that both have."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsd_core.formatting import count, number
from fsd_core.statistics import betting
from fsd_core.statistics.clusters import by_group, design_effect, numbered, sign_flip, sums
from fsd_core.statistics.intervals import Interval


@dataclass(frozen=True)
class PairedDifference:
    """Accuracy of ``a`` minus accuracy of ``b`` on the prompts that both have."""

    difference: float
    interval: Interval
    """Tango's score interval, or the bounds of bets (:mod:`fsd_core.statistics.betting`)"""
    p_value: float
    """two-sided exact McNemar test of "neither is better"; 1 if they never disagree. Of clusters it is the exact test
    of their sums' signs"""
    only_a: int
    """prompts that only ``a`` solves"""
    only_b: int
    n: int
    """prompts that both have"""
    p_worse: float
    """one-sided p-value of the same test for "``a`` is worse"; 1 if they never disagree"""
    design_effect: float = 1.0
    """how many of the prompts say as much as one that stands alone (:mod:`fsd_core.statistics.clusters`)"""
    sequential: bool = False
    """whether the number of prompts followed from their outcomes. A p-value then says what the interval excludes"""

    @property
    def text(self) -> str:
        """In points, such as ``−0.9 points [−4.9, +2.5] on 112 prompts``."""
        value, low, high = (number(100 * end, 1, signed=True) for end in (self.difference, *self.interval))
        return f"{value} points [{low}, {high}] on {self.prompts_text}"

    @property
    def prompts_text(self) -> str:
        """The number of prompts, and of how many that stand alone they say as much: ``80 prompts, as 20 alone``."""
        alone = math.floor(self.n / self.design_effect)
        more = f", as {alone:,} alone" if alone < self.n else ", by the bounds of their calibration" * self.sequential
        return count(self.n, "prompt") + more


def sequential_difference(
    gained: Mapping[int, float], earlier: Mapping[int, float], groups: Mapping[int, str], most: int, bound: float,
    bets: int,
) -> PairedDifference:  # fmt: skip
    """Return the difference of two runs on prompts whose number followed from their outcomes, such as a calibration's.

    gained: 1, −1 or 0 for each prompt by position, in the order of use, at least one; earlier: the same of other
    prompts, from which the stakes follow; groups: by position, of prompts that depend on each other, ``most`` in the
    largest; bound: the mean of (1 + gain) / 2 that is bet against; bets: how many share the level.
    """
    (values, clusters), (before, clusters_before) = (
        ((1 + np.array([*gains.values()], float)) / 2, by_group(gains, groups)) for gains in (gained, earlier)
    )

    def at_least(values: np.ndarray, before: np.ndarray, against: float) -> float:
        stakes = betting.stakes(betting.together(before, clusters_before, most, against), against)
        return 2 * betting.lower_bound(values, stakes, betting.LEVEL / bets, clusters, most) - 1

    ends = Interval(at_least(values, before, bound), -at_least(1 - values, 1 - before, 0.5))
    p_worse, p_better = (betting.LEVEL if refuted else 1.0 for refuted in (ends.high < 0, ends.low > 0))
    only_a, only_b = (int((values == won).sum()) for won in (1, 0))
    return PairedDifference(
        (only_a - only_b) / len(values), ends, min(p_worse, p_better), only_a, only_b, len(values), p_worse,
        sequential=True,
    )  # fmt: skip


def paired_difference(
    a: Mapping[int, bool],
    b: Mapping[int, bool],
    confidence: float = 0.95,
    clusters: Mapping[int, Hashable] | None = None,
) -> PairedDifference:
    """Compare two runs prompt by prompt. Keys are positions of prompts, values whether the prompt was solved.

    ``clusters`` name the cluster of each prompt, within which prompts depend on each other; without it each stands
    alone. Raises ``ValueError`` if the two share no prompt.
    """
    shared = a.keys() & b.keys()
    if not shared:
        raise ValueError("The two runs share no prompt, so they cannot be compared prompt by prompt.")
    only_a, only_b, n = sum(a[k] and not b[k] for k in shared), sum(b[k] and not a[k] for k in shared), len(shared)
    effect, (worse, either) = 1.0, _mcnemar(only_a, only_b)
    if clusters is not None and len(numbers := numbered(clusters[k] for k in shared)) > numbers.max() + 1:
        gains = np.array([int(a[k]) - int(b[k]) for k in shared])
        effect = design_effect(gains, numbers)
        worse, either = sign_flip(sums(gains, numbers).astype(int).tolist())
    return PairedDifference(
        difference=(only_a - only_b) / n,
        interval=_tango(only_a / effect, only_b / effect, n / effect, confidence),
        p_value=either,
        only_a=only_a,
        only_b=only_b,
        n=n,
        p_worse=worse,
        design_effect=effect,
    )


def _mcnemar(only_a: int, only_b: int) -> tuple[float, float]:
    """Return the p-values of McNemar's exact test, of "a is worse" and of "either is"."""
    if not only_a + only_b:
        return 1.0, 1.0
    from scipy.stats import binomtest  # takes a second to import, and most callers need no test

    return (
        float(binomtest(only_a, only_a + only_b, alternative="less").pvalue),
        float(binomtest(only_a, only_a + only_b).pvalue),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of several tests, corrected to keep the chance of any false alarm at the level (Holm
    1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, highest = [1.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = highest
    return corrected


def tango_score(only_a: Any, only_b: Any, n: float, difference: float) -> Any:
    """Return Tango's score (1998) of "the shares differ by ``difference``".

    It is standard normal if they do, and above 0 if they differ by more. The counts are numbers, or arrays of one
    shape, which the score then has.
    """
    second = (2 * n - only_a + only_b) * difference - only_a - only_b
    third = -only_b * difference * (1 - difference)
    lost = (np.sqrt(np.maximum(second**2 - 8 * n * third, 0.0)) - second) / (4 * n)
    variance = n * (2 * lost + difference * (1 - difference))
    excess = only_a - only_b - n * difference
    certain = np.where(np.abs(excess) < 1e-9, 0.0, np.copysign(np.inf, excess))
    return np.where(variance > 1e-12, excess / np.sqrt(np.maximum(variance, 1e-12)), certain)


def _tango(only_a: float, only_b: float, n: float, confidence: float) -> Interval:
    """Return Tango's score interval of a difference of paired shares, which is valid even without disagreements."""

    def score(difference: float) -> float:
        return float(tango_score(only_a, only_b, n, difference))

    value, bound = (only_a - only_b) / n, _normal(confidence)
    return Interval(_crossing(score, bound, -1.0, value), _crossing(score, -bound, value, 1.0))


def _normal(confidence: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + confidence) / 2))


def _crossing(score: Callable[[float], float], level: float, low: float, high: float) -> float:
    """Return where a falling score crosses a level between two points; without a crossing, the end closer to it."""
    from scipy.optimize import root_scalar

    def distance(at: float) -> float:
        return min(max(score(at), -1e9), 1e9) - level  # the solver does not accept infinity

    if distance(high) >= 0:
        return high
    return low if distance(low) <= 0 else float(root_scalar(distance, bracket=(low, high), xtol=1e-9).root)
