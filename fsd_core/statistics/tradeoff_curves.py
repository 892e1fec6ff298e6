"""Quality against cost along a rule's knob, resampled over prompts: the loss of several rules at one common cost.

Quality is the share of prompts solved. If nothing is scored it is a rate: a ratio of sums over the same prompts, such
as log-likelihood per token.

A family is a rule with everything but its knob. Its measured settings in order of leniency are its path. Between two
neighbours the path is a straight line of relative cost and accuracy: the mean cost and accuracy of answering each
prompt with one of the two settings, picked at random. Such a mixture can be used, so nothing is assumed about knob
values in between. Nothing is extrapolated beyond the measured settings. A path need not be monotone: its value at a
cost is that of its strictest crossing.

All settings share one set of resamples, so differences between them are paired by prompt. Standard errors are the
bootstrap's (Efron 1979). Those of shares are widened as if there were two more prompts, one gained and one lost. This
is Bonett and Price's (2012) interval of a paired difference of shares: prompts on which two settings never disagree do
not show that none would.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fsd_core.statistics.clusters import sums
from fsd_core.statistics.intervals import FEWEST_PROMPTS, Interval

RESAMPLES = 1000
BAND_LEVEL = 0.05
_GRID = 24
"""costs between the ends of a path at which its band is computed, besides those of its settings"""
_LEAST_VARIANCE = 1e-18
"""variance of a difference of rates that no prompt separates; not 0, since differences are divided by its root"""
_NO_WIDTH = 1e-6
_BEYOND = 1.0
"""how far a resample that does not reach a cost extends its last line, in lengths of that line"""


class Measured(NamedTuple):
    """Measurements of n prompts by setting."""

    gained: np.ndarray
    """For shares: solved by the setting less solved by the target, a mean over seeds, -1 to 1. For rates: the
    numerator, more is better. [n,K]"""
    cost: np.ndarray
    """cost of the answer, such as forwards of the target; NaN if it failed, [n,K]"""
    reference: np.ndarray
    """cost at the reference, NaN if it failed, [n]"""
    over: np.ndarray | None = None
    """for rates: the denominator, such as tokens, [n,K]"""
    target: int = 0
    """for rates: the column of the rate that the others are compared with"""
    clusters: np.ndarray | None = None
    """which cluster each prompt belongs to, within which prompts depend on each other, from 0, [n]"""


class PathPosition(NamedTuple):
    """Position of a cost on a path: between two neighbours, by their columns."""

    stricter: int
    looser: int
    share: float
    """weight of the looser one, 0 to 1"""


class CurvePoints(NamedTuple):
    """A path at several relative costs."""

    at: np.ndarray
    """relative costs, [R]"""
    value: np.ndarray
    """quality less the target's; NaN outside the measured range, [R]"""
    resampled: np.ndarray
    """[B,R]"""
    places: tuple[PathPosition | None, ...]


class Curves:
    """The settings of all families, resampled together. Costs are relative to the reference: below 1 is cheaper."""

    def __init__(self, measured: Measured, resamples: int = RESAMPLES, seed: int = 0) -> None:
        self.measured = measured
        self.is_share = measured.over is None
        complete = ~np.isnan(measured.cost) & ~np.isnan(measured.reference)[:, None]
        tables = (
            measured.gained, np.where(complete, measured.cost, 0), np.where(complete, measured.reference[:, None], 0),
            np.ones_like(measured.gained) if measured.over is None else measured.over,
        )  # fmt: skip
        clusters = np.arange(len(measured.gained)) if measured.clusters is None else measured.clusters
        self._tables = [sums(table, clusters) for table in tables]
        self.n = len(self._tables[0])
        """clusters, which are resampled: prompts, where each stands alone"""
        self.shrunk = self.n / (self.n + 2) if self.is_share else 1.0
        """factor that pulls a difference towards 0, for the two added prompts"""
        self.difference, self.cost = (row[0] for row in self._weighted(np.ones((1, self.n))))
        self._resamples, self._seed = resamples, seed

    def _weighted(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return differences and relative costs of weighted prompts, [B,n] → [B,K] each; NaN for an unknown cost."""
        gained, cost, reference, over = (weights @ table for table in self._tables)
        with np.errstate(divide="ignore", invalid="ignore"):
            quality = gained / over
            difference = quality if self.is_share else quality - quality[:, [self.measured.target]]
            return difference, cost / reference

    @cached_property
    def _resampled(self) -> tuple[np.ndarray, np.ndarray]:
        """Differences and relative costs, [B,K] each."""
        rng = np.random.default_rng(self._seed)
        block = max(1, 4_000_000 // self.n)  # resamples whose counts are in memory at a time
        sizes = [min(block, self._resamples - done) for done in range(0, self._resamples, block)]
        uniform = np.full(self.n, 1 / self.n)
        parts = [self._weighted(rng.multinomial(self.n, uniform, size).astype(float)) for size in sizes]
        difference, cost = (np.concatenate(side) for side in zip(*parts, strict=True))
        return difference, cost

    # --- one family ----------------------------------------------------------------------------------------------

    def grid(self, path: Sequence[int]) -> np.ndarray:
        """Return relative costs along a path, dearest first: those of its settings and others between its ends."""
        costs = self.cost[list(path)]
        return np.unique(np.concatenate([costs, np.linspace(costs.min(), costs.max(), _GRID)]))[::-1]

    def along(self, path: Sequence[int], at: Sequence[float] | np.ndarray) -> CurvePoints:
        """Return the path at these relative costs. Resamples choose and interpolate anew: both are uncertain."""
        columns, at = np.asarray(path), np.asarray(at, float)
        difference, cost = self._resampled
        value, resampled, positions = np.full(len(at), np.nan), np.full((len(difference), len(at)), np.nan), []
        for i, target_cost in enumerate(at):
            crossing = _crossing(self.cost[columns][None], target_cost)
            if not crossing.reached[0]:
                positions.append(None)
                continue
            segment, share = int(crossing.segment[0]), float(crossing.share[0])
            value[i] = _between(self.difference[columns][None], crossing)[0]
            positions.append(
                PathPosition(int(columns[segment]), int(columns[min(segment + 1, len(columns) - 1)]), share)
            )
            resampled[:, i] = _between(difference[:, columns], _crossing(cost[:, columns], target_cost, segment))
        return CurvePoints(at, value, resampled, tuple(positions))

    def settings(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the differences of the measured settings and their resamples, [K] and [B,K]."""
        return self.difference, self._resampled[0]

    def cost_intervals(self, level: float = BAND_LEVEL) -> list[Interval | None]:
        """Return the interval of each setting's relative cost; ``None`` if nothing varies or prompts are too few."""
        if self.n < FEWEST_PROMPTS:
            return [None] * len(self.cost)
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.log(self._resampled[1]).std(0, ddof=1) * np.sqrt(self.n / (self.n - 1))
            factor = np.exp(quantile(self.n, level) * spread)
        return [
            Interval(float(cost / f), float(cost * f)) if np.isfinite(f) and s > 1e-12 else None
            for cost, f, s in zip(self.cost, factor, spread, strict=True)
        ]

    # --- uncertainty ---------------------------------------------------------------------------------------------

    def error(self, resampled: np.ndarray) -> np.ndarray:
        """Return the standard error of differences from their resamples, [B,...] → [...]; NaN below three prompts."""
        if self.n < FEWEST_PROMPTS:
            return np.full(resampled.shape[1:], np.nan)
        added = 2 / (self.n + 2) ** 2 if self.is_share else _LEAST_VARIANCE
        return np.sqrt(resampled.var(0) * self.shrunk**2 * self.n / (self.n - 1) + added)

    def ends(
        self, value: np.ndarray, resampled: np.ndarray, level: float = BAND_LEVEL
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return both ends of the intervals of differences, two-sided at ``level``."""
        middle, half = value * self.shrunk, quantile(self.n, level) * self.error(resampled)
        limit = 1.0 if self.is_share else np.inf
        return np.maximum(middle - half, -limit), np.minimum(middle + half, limit)


def nondegenerate_interval(low: float, high: float) -> Interval | None:
    """Return an interval of differences; ``None`` for too few prompts, and for rates that no prompt separates."""
    return Interval(float(low), float(high)) if high - low > _NO_WIDTH else None


def quantile(n: int, level: float = BAND_LEVEL) -> float:
    """Return Student's two-sided quantile for n prompts."""
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    return float(stdtrit(max(n - 1, 1), 1 - level / 2))


class _Crossing(NamedTuple):
    """Where paths reach a cost, [B] each."""

    segment: np.ndarray
    share: np.ndarray
    reached: np.ndarray


def _crossing(cost: np.ndarray, target_cost: float, fallback: int = 0) -> _Crossing:
    """Return the first line of each path that reaches a cost, [B,J] → [B].

    A path that does not reach it extends the line ``fallback``.
    """
    if cost.shape[1] == 1:
        zeros = np.zeros(len(cost), int)
        return _Crossing(zeros, zeros.astype(float), np.isclose(cost[:, 0], target_cost))
    above = cost - target_cost
    near = np.abs(above) <= 1e-9 * np.maximum(1, np.abs(target_cost))
    crosses = (above[:, :-1] * above[:, 1:] <= 0) | near[:, :-1] | near[:, 1:]
    reached = crosses.any(1)
    segment = np.where(reached, crosses.argmax(1), fallback)
    rows = np.arange(len(cost))
    start, end = above[rows, segment], above[rows, segment + 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(np.abs(start - end) > 1e-12, start / (start - end), 0.0)
    share = np.where(reached, share.clip(0, 1), share.clip(-_BEYOND, 1 + _BEYOND))
    return _Crossing(segment, share, reached)


def _between(difference: np.ndarray, crossing: _Crossing) -> np.ndarray:
    rows, last = np.arange(len(difference)), difference.shape[1] - 1
    start, end = difference[rows, crossing.segment], difference[rows, np.minimum(crossing.segment + 1, last)]
    return start + crossing.share * (end - start)
