"""Test whether a run solves as many prompts as its baseline, within an accepted margin."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fsd_core.errors import OutOfRange
from fsd_core.formatting import count
from fsd_core.statistics.betting import LEVEL
from fsd_core.statistics.paired import PairedDifference, tango_score

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


def identical(paired: PairedDifference) -> Verdict:
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
