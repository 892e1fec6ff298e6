"""Intervals of shares, medians, ratios and rare events.

Intervals of ratios are in ``ratios``, of differences between two runs in ``paired``.

Upper limits on the share of an event that few or none of the prompts showed.

If none of n independent prompts showed it, its share is at most 1 − 0.05^(1/n) with a confidence of 95 %, about 3/n:
the rule of three (Hanley and Lippman-Hand 1983). If k did, it is the one-sided limit of Clopper and Pearson (1934), the
0.95 quantile of Beta(k + 1, n − k). For k = 0 that is the same number.

Prompts that depend on each other, and how much less they say than as many that stand alone.

A cluster is a conversation, or the prompts of one template or document. Clusters are taken to be drawn independently of
each other, and prompts of one cluster may depend on each other in any way. Sums over clusters then take the place of
prompts. Counts are divided by the design effect (Kish 1965; for tests Rao and Scott 1992), which also pays for the
uncertainty of its own estimate by Student's t (Korn and Graubard 1998). ``test_intervals.py`` simulates both.

Intervals of ratios of sums over prompts, alone and against those of another run on the same prompts.

The unit is the prompt, never the token: tokens of one text depend on each other. Intervals follow from the ratio's
delta method with jackknifed residuals (HC3, MacKinnon and White 1985) and Student's t. With equal denominators this is
the textbook's r ± t(n−1)·√(n/(n−1)·Σ(aᵢ−r·bᵢ)²)/Σb. If texts differ in length, few of them dominate. The degrees of
freedom are therefore those of Kish's effective number of prompts (Kish 1965), (Σw)²/Σw² of the prompts' shares w, or of
twice that of the squared residuals if it is smaller. ``tests/unit/test_intervals.py`` simulates their coverage.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import NormalDist
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

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends; the value itself for one that is unknown."""
        return (self.value if self.low is None else self.low), (self.value if self.high is None else self.high)


def keyed(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    """Return a figure as stored: as ``name``, its ends as ``name_low`` and ``name_high``; ``None`` for no figure."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), estimate or (None, None, None), strict=True))


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval of a proportion (Wilson 1927), with a correction for continuity: method 4 of
    Newcombe (1998), as scipy's ``wilsoncc``, which takes a second to import.

    Without the correction it covers only 83 % at some shares of few prompts. Raises ``ValueError`` for impossible
    counts, such as an ``n`` of 0.
    """
    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"Expected 0 <= successes <= n and n > 0, got {successes} of {n}.")
    z = NormalDist().inv_cdf((1 + confidence) / 2)

    def low(successes: int) -> float:
        share = successes / n
        root = math.sqrt(z**2 - 2 - 1 / n + 4 * share * (n - successes + 1)) if successes else 0.0
        return (2 * successes + z**2 - 1 - z * root) / (2 * (n + z**2)) if successes else 0.0

    return Interval(low(successes), 1 - low(n - successes))


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


CONFIDENCE = 0.95
RARE = 0.01
"""a share of runaways that a verdict on speed or length must have had the chance to see"""
PROMPTS_THAT_SHOW_RARE = math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - RARE))
"""299: so many prompts show an event of 1 % at least once with a chance of 95 %"""


def most_share(seen: int, n: int) -> float:
    """Return the largest share, at 95 %, of an event that ``seen`` of ``n`` prompts showed.

    Raises ``ValueError`` for impossible counts, such as an ``n`` of 0.
    """
    if not 0 <= seen <= n or n == 0:
        raise ValueError(f"Expected 0 <= seen <= n and n > 0, got {seen} of {n}.")
    if not seen:
        return 1 - (1 - CONFIDENCE) ** (1 / n)
    if seen == n:
        return 1.0
    from scipy.special import betaincinv  # scipy.stats takes a second to import

    return float(betaincinv(seen + 1, n - seen, CONFIDENCE))


def with_runaways(ratio: float, share: float, runaway: float) -> float:
    """Return a ratio to a baseline's mean if a further ``share`` of answers is runaways.

    Without them it is ``ratio``. ``runaway`` is one runaway over the baseline's mean. It is (1 − u)·r + u·x.
    """
    return (1 - share) * ratio + share * runaway


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


Pairs = Sequence[tuple[float, float]]
"""numerator and denominator of each prompt"""
Ends = tuple[np.ndarray, np.ndarray]
"""low and high, NaN without an interval"""
_WIDEST, _WIDEST_SHARE = 5.0, 0.8
"""Wider intervals are not reported: more than five times up and down, or more than four fifths of the range of a share.
One or two prompts then dominate the ratio, for example because the machine paused in one of them."""
_ROUNDING = 1e-12
"""smaller standard errors count as none: prompts that do not differ say nothing about others"""


class _Parts(NamedTuple):
    ratio: np.ndarray
    """[...]"""
    influence: np.ndarray
    """jackknifed residual of each prompt, in the unit of the ratio, [..., n]"""
    share: np.ndarray
    """share of the prompt in the sums, [..., n]"""


def summed(pairs: Pairs, clusters: np.ndarray) -> Pairs:
    """Return the sums of numerators and of denominators in each cluster. clusters: int [n], numbers from 0"""
    return [(top, bottom) for top, bottom in sums(_table(pairs), clusters).tolist()]


def ratio_interval(pairs: Pairs, *, is_share: bool = False) -> Interval | None:
    """Return the 95 % interval of ``Σ numerators / Σ denominators``.

    ``None`` for fewer than three prompts that have either, for prompts that do not differ, and for an interval that
    would reach more than five times up and down, or over four fifths of 0 … 1. It is symmetric on the log scale, or on
    the logit scale for a share of something (``is_share``), so it stays in the valid range. Raises ``ValueError`` if
    every denominator is 0.
    """
    return _interval(ratio_ends(_table(pairs), is_share=is_share))


def quotient_interval(run: Pairs, baseline: Pairs) -> Interval | None:
    """Return the 95 % interval of one ratio of sums over another, of the same prompts in the same order.

    ``None`` if fewer than three prompts differ between the two, too few to estimate their spread, and if it would reach
    more than five times up and down. Raises ``ValueError`` like :func:`ratio_interval`.
    """
    return _interval(quotient_ends(np.hstack([_table(run), _table(baseline)])))


def difference_interval(run: Pairs, baseline: Pairs) -> Interval | None:
    """Return the 95 % interval of one ratio of sums less another, of the same prompts in the same order.

    ``None`` if fewer than three prompts differ. Raises ``ValueError`` like :func:`ratio_interval`.
    """
    return _interval(difference_ends(np.hstack([_table(run), _table(baseline)])))


def ratio_ends(table: np.ndarray, *, is_share: bool = False) -> Ends:
    """Return :func:`ratio_interval` of many runs at once, [..., n, 2] → [...]."""
    present = _any(table)
    ratio, influence, share = _parts(table)
    half = _half(influence, share, present)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if is_share:
            inside, odds, factor = (ratio > 0) & (ratio < 1), ratio / (1 - ratio), np.exp(half / (ratio * (1 - ratio)))
            low, high = odds / (factor + odds), 1 - 1 / (1 + odds * factor)
            reported = inside & (high - low <= _WIDEST_SHARE)
            return np.where(reported, low, np.nan), np.where(reported, high, np.nan)
        factor = _bounded(np.exp(half / ratio))
        return np.where(ratio > 0, ratio / factor, ratio - half), np.where(ratio > 0, ratio * factor, ratio + half)


def quotient_ends(table: np.ndarray) -> Ends:
    """Return :func:`quotient_interval` of many runs at once, [..., n, 4] → [...]; NaN for a ratio of 0 or less."""
    a, b, differing = _both(table)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        influence = a.influence / a.ratio[..., None] - b.influence / b.ratio[..., None]
        factor = _bounded(np.exp(_half(influence, a.share + b.share, _any(table), differing)))
        value = np.where((a.ratio > 0) & (b.ratio > 0), a.ratio / b.ratio, np.nan)
        return value / factor, value * factor


def difference_ends(table: np.ndarray) -> Ends:
    """Return :func:`difference_interval` of many runs at once, [..., n, 4] → [...]."""
    a, b, differing = _both(table)
    half = _half(a.influence - b.influence, a.share + b.share, _any(table), differing)
    return a.ratio - b.ratio - half, a.ratio - b.ratio + half


def _bounded(factor: np.ndarray) -> np.ndarray:
    """Return a factor up and down, NaN if it is too large to be informative."""
    return np.where(factor > _WIDEST, np.nan, factor)


def _table(pairs: Pairs) -> np.ndarray:
    return np.asarray(pairs, float).reshape(-1, 2)


def _interval(ends: Ends) -> Interval | None:
    low, high = map(float, ends)
    return Interval(low, high) if np.isfinite(low) and np.isfinite(high) else None


def _both(table: np.ndarray) -> tuple[_Parts, _Parts, np.ndarray]:
    """Return both ratios, and which prompts differ between them, [..., n]."""
    return _parts(table[..., :2]), _parts(table[..., 2:]), _any(table[..., :2] != table[..., 2:])


def _parts(table: np.ndarray) -> _Parts:
    top, bottom = table[..., 0], table[..., 1]
    above, below = top.sum(-1, keepdims=True), bottom.sum(-1, keepdims=True)
    if not below.all():
        raise ValueError("The ratio of sums has no interval: every denominator is 0.")
    ratio, leverage = above / below, bottom / below
    with np.errstate(divide="ignore", invalid="ignore"):
        influence = np.where(leverage < 1, (top - ratio * bottom) / (1 - leverage) / below, 0.0)
        share = np.where(above > 0, (leverage + top / above) / 2, leverage)
    return _Parts(ratio[..., 0], influence, share)


def _half(
    influence: np.ndarray, share: np.ndarray, present: np.ndarray, differing: np.ndarray | None = None
) -> np.ndarray:
    """Return half of the interval's width, [...]; NaN if fewer than three prompts are informative."""
    from scipy.special import stdtrit  # Student's quantiles; scipy.stats takes a second to import

    informative = present if differing is None else differing
    n, weights = present.sum(-1), share * informative
    with np.errstate(divide="ignore", invalid="ignore"):
        # A few prompts may also dominate the spread. With normal residuals, half of them do not.
        effective = np.fmin(_effective(weights), 2 * _effective(influence**2)).clip(2)
        error = np.sqrt((n - 1) / n * (influence**2).sum(-1))
    spread = (informative.sum(-1) >= FEWEST_PROMPTS) & (error > _ROUNDING)
    return np.where(spread, stdtrit(effective - 1, 0.975) * error, np.nan)


def _any(table: np.ndarray) -> np.ndarray:
    return np.asarray(table.any(-1))


def _effective(weights: np.ndarray) -> np.ndarray:
    return weights.sum(-1) ** 2 / (weights**2).sum(-1)
