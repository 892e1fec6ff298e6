"""Intervals of ratios of sums over prompts, alone and against those of another run on the same prompts.

The unit is the prompt, never the token: tokens of one text depend on each other. Intervals follow from the ratio's
delta method with jackknifed residuals (HC3, MacKinnon and White 1985) and Student's t. With equal denominators this is
the textbook's r ± t(n−1)·√(n/(n−1)·Σ(aᵢ−r·bᵢ)²)/Σb. If texts differ in length, few of them dominate. The degrees of
freedom are therefore those of Kish's effective number of prompts (Kish 1965), (Σw)²/Σw² of the prompts' shares w, or of
twice that of the squared residuals if it is smaller. ``tests/unit/test_coverage.py`` simulates their coverage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fsd_core.statistics.clusters import sums
from fsd_core.statistics.intervals import FEWEST_PROMPTS, Interval

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
