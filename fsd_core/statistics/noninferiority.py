"""Whether a run solves as many prompts as its baseline, within a margin that somebody is ready to pay."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fsd_core.errors import InvalidSetting
from fsd_core.statistics.paired import PairedDifference, tango_score

_MARGINS = (0.0, 20.0)
"""points of accuracy between which a margin lies"""
LEVEL, POWER = 0.05, 0.8
_NUISANCES = 40
_NEGLIGIBLE = 1e-9


class Verdict(NamedTuple):
    """What can be said of a run's accuracy against its baseline's."""

    kind: str
    """``non-inferior``, ``worse`` or ``undecided``"""
    p_value: float
    """one-sided, that it is not worse by the margin or more"""
    prompts: int | None
    """of an undecided one: about how many would decide"""

    def sentence(self, margin: float) -> str:
        """Such as ``Non-inferior within 2 points``."""
        if self.kind == "non-inferior":
            return f"Non-inferior within {margin:g} points" if margin else "Better"
        if self.kind == "worse":
            return "Worse"
        return f"Not enough prompts: about {self.prompts:,} would decide" if self.prompts else "Not enough prompts"


def checked_margin(points: float | None) -> float:
    """A margin in points. Raises ``InvalidSetting`` outside of 0 to 20."""
    if points is None or not _MARGINS[0] <= points <= _MARGINS[1]:  # NaN is neither
        given = "missing" if points is None else f"{points:g} points"
        raise InvalidSetting(f"The margin is {given}: expected 0 to 20 points of accuracy.")
    return points


def verdict(paired: PairedDifference, margin: float) -> Verdict:
    """The verdict at 5 %, one-sided; ``margin`` in points of accuracy.

    Non-inferior where :func:`p_value` is below 5 %; else worse where McNemar's exact test, one-sided, says that the run
    solves fewer than the baseline. Raises ``InvalidSetting`` for a margin outside of 0 to 20.
    """
    from scipy.stats import binom

    share = checked_margin(margin) / 100
    p = p_value(paired.only_a, paired.only_b, paired.n, share)
    if p < LEVEL:
        return Verdict("non-inferior", p, None)
    disagreed = paired.only_a + paired.only_b
    if disagreed and binom.cdf(paired.only_a, disagreed, 0.5) < LEVEL:
        return Verdict("worse", p, None)
    return Verdict("undecided", p, _deciding(paired, share))


@lru_cache(4096)
def p_value(only_a: int, only_b: int, n: int, margin: float) -> float:
    """The chance of counts that speak as much for non-inferiority if ``a`` is worse by ``margin``, which is a share.

    The exact unconditional test on Tango's score (Hsueh, Liu and Chen 2001): the largest such chance over all shares of
    prompts on which ``a`` alone could be right. It keeps its level whatever ``n`` is, which the score's normal
    approximation does not where the two hardly ever disagree.
    """
    from scipy.stats import binom

    seen = tango_score(only_a, only_b, n, -margin)
    gained = np.arange(n + 1)
    most = _most_lost(gained, n, margin, seen)
    # Nothing is known of the share of gains but that it leaves room for the losses.
    shares = np.concatenate([[0.0], np.geomspace(1e-4, 1, _NUISANCES)]) * (1 - margin) / 2
    worst = 0.0
    for share in shares:
        if share + margin == 0:  # the two never disagree, at no margin
            worst = max(worst, float(most[0] >= 0))
            continue
        chance = binom.pmf(gained, n, share)
        held = chance > _NEGLIGIBLE / (n + 1)
        lost = binom.cdf(most[held], n - gained[held], (share + margin) / (1 - share))
        worst = max(worst, float((chance[held] * lost).sum()))
    return min(1.0, worst)


def _most_lost(gained: np.ndarray, n: int, margin: float, seen: float) -> np.ndarray:
    """By the number of gains, with how many losses the score, which they lower, is as high as seen; -1 for none."""
    low, high = np.full(len(gained), -1), n - gained
    while (low < high).any():
        middle = (low + high + 1) // 2
        enough = tango_score(gained, middle, n, -margin) >= seen - 1e-9
        low, high = np.where(enough, middle, low), np.where(enough, high, middle - 1)
    return low


def _deciding(paired: PairedDifference, margin: float) -> int | None:
    """About how many prompts give a chance of 80 % to decide, if what was seen of the two goes on; ``None`` if none do.

    Half a prompt is added to either side's gains, since no disagreement among few says little.
    """
    n = paired.n + 1
    gains, losses = (paired.only_a + 0.5) / n, (paired.only_b + 0.5) / n
    difference, disagreeing = gains - losses, gains + losses
    spread = max(disagreeing - difference**2, 1e-12)
    sum_of_quantiles = sum(quantiles_of_power())
    needed = [spread * (sum_of_quantiles / gap) ** 2 for gap in (difference + margin, -difference) if gap > 1e-3]
    if not needed:
        return None
    return about(max(min(needed), paired.n + 1))


def quantiles_of_power() -> tuple[float, float]:
    """The normal quantiles of a one-sided test at 5 % and of a chance of 80 % to pass it."""
    from scipy.special import ndtri

    return float(ndtri(1 - LEVEL)), float(ndtri(POWER))


def about(prompts: float) -> int:
    """So many prompts rounded up to two digits, which is all that is known of them."""
    step = 10 ** max(0, math.floor(math.log10(prompts)) - 1)
    return math.ceil(prompts / step) * step
