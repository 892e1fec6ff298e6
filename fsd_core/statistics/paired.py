"""Two runs compared on the prompts that both have, at once or one prompt after the other.

Sequential test whether the mean of values from 0 to 1 lies above a bound, decided as soon as the values allow.

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

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fsd_core.errors import OutOfRange
from fsd_core.statistics.intervals import Interval, by_group, design_effect, numbered, sign_flip, sums
from fsd_core.texts import count, number_text

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


def stakes_for(earlier: np.ndarray, bound: float) -> np.ndarray:
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


@dataclass(frozen=True)
class PairedDifference:
    """Accuracy of ``a`` minus accuracy of ``b`` on the prompts that both have."""

    difference: float
    interval: Interval
    """Tango's score interval, or the bounds of bets"""
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
    """how many of the prompts say as much as one that stands alone (:mod:`fsd_core.statistics.intervals`)"""
    sequential: bool = False
    """whether the number of prompts followed from their outcomes. A p-value then says what the interval excludes"""

    @property
    def text(self) -> str:
        """In points, such as ``−0.9 points [−4.9, +2.5] on 112 prompts``."""
        value, low, high = (number_text(100 * end, 1, signed=True) for end in (self.difference, *self.interval))
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
        stakes = stakes_for(together(before, clusters_before, most, against), against)
        return 2 * lower_bound(values, stakes, LEVEL / bets, clusters, most) - 1

    ends = Interval(at_least(values, before, bound), -at_least(1 - values, 1 - before, 0.5))
    p_worse, p_better = (LEVEL if refuted else 1.0 for refuted in (ends.high < 0, ends.low > 0))
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


_MARGINS = (0.0, 20.0)
"""lowest and highest margin, in points of accuracy"""
POWER = 0.8
_NUISANCES = 40
_NEGLIGIBLE = 1e-9


class Verdict(NamedTuple):
    """Conclusion about a run's accuracy against its baseline's."""

    kind: str
    """``identical``, ``non-inferior``, ``worse`` or ``undecided``"""
    p_value: float | None
    """one-sided p-value of being worse by the margin or more; ``None`` for identical texts, which nothing tests,
    and for a sequential difference"""
    prompts: int | None
    """if undecided: about how many prompts in all would show one or the other"""
    n: int = 0
    """prompts that both did"""

    def sentence(self, margin: float) -> str:
        """Return a sentence such as ``Non-inferior within 2 points``."""
        if self.kind == "identical":
            return f"Texts identical on all {count(self.n, 'prompt')}" if self.n > 1 else "Texts identical"
        if self.kind == "non-inferior":
            return f"Non-inferior within {count(margin, 'point')}" if margin else "Better"
        if self.kind == "worse":
            return "Worse"
        if not self.prompts:
            return "Not enough prompts"
        what = f"within {count(margin, 'point')}" if margin else "better"
        return f"Not enough prompts: about {self.prompts:,} in all would show it {what}, or worse"


def identical_verdict(paired: PairedDifference) -> Verdict:
    """Return the verdict on runs that wrote the same text for every prompt: there is nothing to test."""
    return Verdict("identical", None, None, paired.n)


def checked_margin(points: float | None) -> float:
    """Return a margin in points. Raises ``InvalidSetting`` outside 0 to 20."""
    if points is None or not _MARGINS[0] <= points <= _MARGINS[1]:  # NaN fails both
        given = "missing" if points is None else count(points, "point")
        raise OutOfRange(f"The margin is {given}: expected 0 to 20 points of accuracy.")
    return points


def verdict(paired: PairedDifference, margin: float) -> Verdict:
    """Return the verdict at 5 %, one-sided; ``margin`` in points of accuracy.

    It is non-inferior if :func:`p_value` is below 5 %. Otherwise it is worse if McNemar's exact test, one-sided, finds
    that the run solves fewer than the baseline. Of prompts in clusters the counts are divided by their design effect,
    and rounded against the run. Of a sequential difference its bounds decide instead of both tests.
    Raises ``InvalidSetting`` for a margin outside 0 to 20.
    """
    share, effect = checked_margin(margin) / 100, paired.design_effect
    if paired.sequential:
        low, high = paired.interval
        return Verdict("non-inferior" if low > -share else "worse" if high < 0 else "undecided", None, None, paired.n)
    gained, lost = math.floor(paired.only_a / effect), math.ceil(paired.only_b / effect)
    p = p_value(gained, lost, max(gained + lost, math.floor(paired.n / effect)), share)
    if p < LEVEL:
        return Verdict("non-inferior", p, None, paired.n)
    if paired.p_worse < LEVEL:
        return Verdict("worse", p, None, paired.n)
    return Verdict("undecided", p, _deciding(paired, share), paired.n)


@lru_cache(4096)
def p_value(only_a: int, only_b: int, n: int, margin: float) -> float:
    """Return the chance of counts at least as favourable to non-inferiority if ``a`` is worse by ``margin``, a share.

    This is the exact unconditional test on Tango's score (Hsueh, Liu and Chen 2001): the largest such chance over all
    shares of prompts that ``a`` alone could solve. It keeps its level for every ``n``. The score's normal approximation
    does not if the two hardly ever disagree.
    """
    from scipy.stats import binom

    observed = tango_score(only_a, only_b, n, -margin)
    gained = np.arange(n + 1)
    most_lost = _most_lost(gained, n, margin, observed)
    # The share of gains is unknown, except that it leaves room for the losses.
    shares = np.concatenate([[0.0], np.geomspace(1e-4, 1, _NUISANCES)]) * (1 - margin) / 2
    worst = 0.0
    for share in shares:
        if share + margin == 0:  # a margin of 0, and the two never disagree
            worst = max(worst, float(most_lost[0] >= 0))
            continue
        chance = binom.pmf(gained, n, share)
        relevant = chance > _NEGLIGIBLE / (n + 1)
        lost = binom.cdf(most_lost[relevant], n - gained[relevant], (share + margin) / (1 - share))
        worst = max(worst, float((chance[relevant] * lost).sum()))
    return min(1.0, worst)


def _most_lost(gained: np.ndarray, n: int, margin: float, observed: float) -> np.ndarray:
    """Return, by the number of gains, the most losses at which the score is still as high as observed; -1 for none.

    Losses lower the score.
    """
    low, high = np.full(len(gained), -1), n - gained
    while (low < high).any():
        middle = (low + high + 1) // 2
        enough = tango_score(gained, middle, n, -margin) >= observed - 1e-9
        low, high = np.where(enough, middle, low), np.where(enough, high, middle - 1)
    return low


def _deciding(paired: PairedDifference, margin: float) -> int | None:
    """Return about how many prompts decide with a chance of 80 % if the observed rates continue; ``None`` if none do.

    Half a prompt is added to both gains and losses, since a few prompts without disagreement say little.
    """
    effect = paired.design_effect
    n = paired.n + effect
    gains, losses = (paired.only_a + effect / 2) / n, (paired.only_b + effect / 2) / n
    difference, disagreeing = gains - losses, gains + losses
    spread = max(disagreeing - difference**2, 1e-12)
    sum_of_quantiles = sum(quantiles_of_power())
    needed = [
        effect * spread * (sum_of_quantiles / gap) ** 2 for gap in (difference + margin, -difference) if gap > 1e-3
    ]
    if not needed:
        return None
    return about(max(min(needed), paired.n + 1))


def quantiles_of_power() -> tuple[float, float]:
    """Return the normal quantiles of a one-sided test at 5 % and of a chance of 80 % to pass it."""
    from scipy.special import ndtri

    return float(ndtri(1 - LEVEL)), float(ndtri(POWER))


def about(prompts: float) -> int:
    """Return a number of prompts rounded up to two digits; the estimate is no more precise."""
    step = 10 ** max(0, math.floor(math.log10(prompts)) - 1)
    return math.ceil(prompts / step) * step
