"""How sure a ratio of sums over prompts is, alone and against that of another run on the same prompts.

The unit is the prompt, never the token: tokens of one text depend on each other. Intervals follow from the ratio's
delta method with jackknifed residuals (HC3, MacKinnon and White 1985) and Student's t. With equal denominators that is
the textbook's r ± t(n−1)·√(n/(n−1)·Σ(aᵢ−r·bᵢ)²)/Σb. Where texts differ in length, few of them decide; the degrees of
freedom are therefore those of Kish's effective number of prompts (Kish 1965), (Σw)²/Σw² of the prompts' shares w, or of
twice that of the squared residuals where it is less.
``tests/unit/test_coverage.py`` simulates what they cover.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fsd_core.statistics.intervals import FEWEST_PROMPTS, Interval

Pairs = Sequence[tuple[float, float]]
"""numerator and denominator of each prompt"""
Ends = tuple[np.ndarray, np.ndarray]
"""low and high, NaN where there is no interval"""
_WIDEST, _WIDEST_SHARE = 5.0, 0.8
"""An interval that reaches further, five times up and down or over four fifths of all that a share can be, is none: one
or two prompts decide the ratio, as where the machine paused in one of them."""
_ROUNDING = 1e-12
"""below which a standard error is none: prompts that do not differ say nothing of how others would"""


class _Parts(NamedTuple):
    ratio: np.ndarray
    """[...]"""
    influence: np.ndarray
    """jackknifed residual of each prompt, in the unit of the ratio, [..., n]"""
    share: np.ndarray
    """of the prompt in the sums, [..., n]"""


def ratio_interval(pairs: Pairs, *, is_share: bool = False) -> Interval | None:
    """The interval of 95 % of ``Σ numerators / Σ denominators``; ``None`` below three prompts that have either,
    where these do not differ, and where it would reach more than five times up and down, or over four fifths of 0 … 1.

    It is symmetric on the logarithm's scale, of a share of something (``is_share``) on the logit's, so that it stays
    where such ratios are. Raises ``ValueError`` if every denominator is 0.
    """
    return _interval(ratio_ends(_table(pairs), is_share=is_share))


def quotient_interval(ours: Pairs, theirs: Pairs) -> Interval | None:
    """The interval of 95 % of one ratio of sums over another, of the same prompts in the same order.

    ``None`` where fewer than three prompts differ between the two, which leaves nothing to estimate their spread by,
    and where it would reach more than five times up and down. Raises ``ValueError`` as :func:`ratio_interval`.
    """
    return _interval(quotient_ends(np.hstack([_table(ours), _table(theirs)])))


def difference_interval(ours: Pairs, theirs: Pairs) -> Interval | None:
    """The interval of 95 % of one ratio of sums less another, as :func:`quotient_interval`."""
    return _interval(difference_ends(np.hstack([_table(ours), _table(theirs)])))


def ratio_ends(table: np.ndarray, *, is_share: bool = False) -> Ends:
    """:func:`ratio_interval` of many runs at once, [..., n, 2] → [...]."""
    known = _any(table)
    ratio, influence, share = _parts(table)
    half = _half(influence, share, known)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if is_share:
            inside, odds, factor = (ratio > 0) & (ratio < 1), ratio / (1 - ratio), np.exp(half / (ratio * (1 - ratio)))
            low, high = odds / (factor + odds), 1 - 1 / (1 + odds * factor)
            told = inside & (high - low <= _WIDEST_SHARE)
            return np.where(told, low, np.nan), np.where(told, high, np.nan)
        factor = _bounded(np.exp(half / ratio))
        return np.where(ratio > 0, ratio / factor, ratio - half), np.where(ratio > 0, ratio * factor, ratio + half)


def quotient_ends(table: np.ndarray) -> Ends:
    """:func:`quotient_interval` of many runs at once, [..., n, 4] → [...]; none for a ratio that is not above 0."""
    a, b, differing = _both(table)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        influence = a.influence / a.ratio[..., None] - b.influence / b.ratio[..., None]
        factor = _bounded(np.exp(_half(influence, a.share + b.share, _any(table), differing)))
        value = np.where((a.ratio > 0) & (b.ratio > 0), a.ratio / b.ratio, np.nan)
        return value / factor, value * factor


def difference_ends(table: np.ndarray) -> Ends:
    """:func:`difference_interval` of many runs at once, [..., n, 4] → [...]."""
    a, b, differing = _both(table)
    half = _half(a.influence - b.influence, a.share + b.share, _any(table), differing)
    return a.ratio - b.ratio - half, a.ratio - b.ratio + half


def _bounded(factor: np.ndarray) -> np.ndarray:
    """A factor up and down, NaN where it is too large to tell anything."""
    return np.where(factor > _WIDEST, np.nan, factor)


def _table(pairs: Pairs) -> np.ndarray:
    return np.asarray(pairs, float).reshape(-1, 2)


def _interval(ends: Ends) -> Interval | None:
    low, high = map(float, ends)
    return Interval(low, high) if np.isfinite(low) and np.isfinite(high) else None


def _both(table: np.ndarray) -> tuple[_Parts, _Parts, np.ndarray]:
    """Both ratios, and which prompts differ between them, [..., n]."""
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
    influence: np.ndarray, share: np.ndarray, known: np.ndarray, differing: np.ndarray | None = None
) -> np.ndarray:
    """Half of the interval's width, [...]; NaN where fewer than three prompts tell anything."""
    from scipy.special import stdtrit  # Student's quantiles; scipy.stats takes a second to import

    telling = known if differing is None else differing
    n, weights = known.sum(-1), share * telling
    with np.errstate(divide="ignore", invalid="ignore"):
        # Few prompts may make up most of the spread, too; of normal residuals half of them do not.
        effective = np.fmin(_effective(weights), 2 * _effective(influence**2)).clip(2)
        error = np.sqrt((n - 1) / n * (influence**2).sum(-1))
    spread = (telling.sum(-1) >= FEWEST_PROMPTS) & (error > _ROUNDING)
    return np.where(spread, stdtrit(effective - 1, 0.975) * error, np.nan)


def _any(table: np.ndarray) -> np.ndarray:
    return np.asarray(table.any(-1))


def _effective(weights: np.ndarray) -> np.ndarray:
    return weights.sum(-1) ** 2 / (weights**2).sum(-1)
