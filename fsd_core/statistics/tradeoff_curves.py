"""Quality against cost along a rule's knob, resampled over prompts: what several rules lose at one common cost.

Quality is the share of prompts solved, or where nothing is scored a rate: a sum over a sum of the same prompts, such as
log-likelihood per token.

A family is a rule with everything but its knob; its measured settings in the order of leniency are its path. Between
two neighbours the path is a straight line of relative cost and accuracy: what answering each prompt by one of the two
settings, drawn by lot, costs and solves on average. Such a mixture can be used, so nothing is assumed of the knob's
values in between. Nothing is told beyond the measured settings. A path need not be monotone: its value at a cost is
that of its strictest crossing.

All settings share one set of resamples, so that differences between them are paired by prompt. Standard errors are the
bootstrap's (Efron 1979). Those of shares are widened as if there were two more prompts, one gained and one lost, which
is Bonett and Price's (2012) interval of a paired difference of shares: prompts on which two settings never disagree do
not show that none would.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fsd_core.statistics.intervals import FEWEST_PROMPTS, Interval

RESAMPLES = 1000
BAND_LEVEL = 0.05
_GRID = 24
"""costs between the ends of a path at which its band is computed, beside those of its settings"""
_NOTHING = 1e-18
"""variance of a difference of rates that no prompt tells apart; not 0, since differences are divided by its root"""
_NO_WIDTH = 1e-6
_BEYOND = 1.0
"""how far a resample that does not reach a cost continues its last line, in lengths of that line"""


class Measured(NamedTuple):
    """What is known of n prompts by setting."""

    gained: np.ndarray
    """of shares: solved by the setting less solved by the target, a mean over seeds: -1 to 1; of rates: what is summed
    up, more is better. [n,K]"""
    cost: np.ndarray
    """of the answer, such as forwards of the target; NaN where it failed, [n,K]"""
    reference: np.ndarray
    """cost at the reference, NaN where it failed, [n]"""
    over: np.ndarray | None = None
    """of rates: what ``gained`` is summed up over, such as tokens, [n,K]"""
    target: int = 0
    """of rates: the column whose rate the others are held against"""


class PathPosition(NamedTuple):
    """Where a path has a cost: between two neighbours of it, by their columns."""

    stricter: int
    looser: int
    share: float
    """of the looser one, 0 to 1"""


class CurvePoints(NamedTuple):
    """A path at several relative costs."""

    at: np.ndarray
    """relative costs, [R]"""
    value: np.ndarray
    """quality less the target's; NaN where the path was not measured, [R]"""
    resampled: np.ndarray
    """[B,R]"""
    places: tuple[PathPosition | None, ...]


class Curves:
    """The settings of all families, resampled together. Costs are relative to the reference: below 1 is cheaper."""

    def __init__(self, measured: Measured, resamples: int = RESAMPLES, seed: int = 0) -> None:
        self.measured, self.n = measured, len(measured.gained)
        self.is_share = measured.over is None
        self.shrunk = self.n / (self.n + 2) if self.is_share else 1.0
        """by how much a difference is drawn to 0, for the two prompts that are added"""
        both = ~np.isnan(measured.cost) & ~np.isnan(measured.reference)[:, None]
        self._tables = (
            measured.gained, np.where(both, measured.cost, 0), np.where(both, measured.reference[:, None], 0),
            np.ones_like(measured.gained) if measured.over is None else measured.over,
        )  # fmt: skip
        self.difference, self.cost = (row[0] for row in self._of(np.ones((1, self.n))))
        self._resamples, self._seed = resamples, seed

    def _of(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Differences and relative costs of weighted prompts, [B,n] → [B,K] each; NaN for a cost that nobody had."""
        gained, cost, reference, over = (weights @ table for table in self._tables)
        with np.errstate(divide="ignore", invalid="ignore"):
            quality = gained / over
            difference = quality if self.is_share else quality - quality[:, [self.measured.target]]
            return difference, cost / reference

    @cached_property
    def _resampled(self) -> tuple[np.ndarray, np.ndarray]:
        """[B,K] each"""
        rng = np.random.default_rng(self._seed)
        block = max(1, 4_000_000 // self.n)  # resamples whose counts are held at a time
        sizes = [min(block, self._resamples - done) for done in range(0, self._resamples, block)]
        alike = np.full(self.n, 1 / self.n)
        parts = [self._of(rng.multinomial(self.n, alike, size).astype(float)) for size in sizes]
        difference, cost = (np.concatenate(side) for side in zip(*parts, strict=True))
        return difference, cost

    # --- one family ----------------------------------------------------------------------------------------------

    def grid(self, path: Sequence[int]) -> np.ndarray:
        """Relative costs along a path, the dearest first: those of its settings and others between its ends."""
        costs = self.cost[list(path)]
        return np.unique(np.concatenate([costs, np.linspace(costs.min(), costs.max(), _GRID)]))[::-1]

    def along(self, path: Sequence[int], at: Sequence[float] | np.ndarray) -> CurvePoints:
        """The path at these relative costs. Resamples choose and interpolate anew, so that the doubt of both counts."""
        columns, at = np.asarray(path), np.asarray(at, float)
        difference, cost = self._resampled
        value, resampled, places = np.full(len(at), np.nan), np.full((len(difference), len(at)), np.nan), []
        for i, wanted in enumerate(at):
            found = _crossing(self.cost[columns][None], wanted)
            if not found.reached[0]:
                places.append(None)
                continue
            segment, share = int(found.segment[0]), float(found.share[0])
            value[i] = _between(self.difference[columns][None], found)[0]
            places.append(PathPosition(int(columns[segment]), int(columns[min(segment + 1, len(columns) - 1)]), share))
            resampled[:, i] = _between(difference[:, columns], _crossing(cost[:, columns], wanted, segment))
        return CurvePoints(at, value, resampled, tuple(places))

    def settings(self) -> tuple[np.ndarray, np.ndarray]:
        """Differences of the measured settings and their resamples, [K] and [B,K]."""
        return self.difference, self._resampled[0]

    def cost_intervals(self, level: float = BAND_LEVEL) -> list[Interval | None]:
        """Of each setting's relative cost; ``None`` where nothing varies, and for few prompts."""
        if self.n < FEWEST_PROMPTS:
            return [None] * len(self.cost)
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.log(self._resampled[1]).std(0, ddof=1) * np.sqrt(self.n / (self.n - 1))
            factor = np.exp(quantile(self.n, level) * spread)
        return [
            Interval(float(cost / f), float(cost * f)) if np.isfinite(f) and s > 1e-12 else None
            for cost, f, s in zip(self.cost, factor, spread, strict=True)
        ]

    # --- how sure ------------------------------------------------------------------------------------------------

    def error(self, resampled: np.ndarray) -> np.ndarray:
        """The standard error of differences by their resamples, [B,...] → [...]; NaN below three prompts."""
        if self.n < FEWEST_PROMPTS:
            return np.full(resampled.shape[1:], np.nan)
        added = 2 / (self.n + 2) ** 2 if self.is_share else _NOTHING
        return np.sqrt(resampled.var(0) * self.shrunk**2 * self.n / (self.n - 1) + added)

    def ends(
        self, value: np.ndarray, resampled: np.ndarray, level: float = BAND_LEVEL
    ) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of the intervals of differences, two-sided at ``level``."""
        middle, half = value * self.shrunk, quantile(self.n, level) * self.error(resampled)
        furthest = 1.0 if self.is_share else np.inf
        return np.maximum(middle - half, -furthest), np.minimum(middle + half, furthest)


def known(low: float, high: float) -> Interval | None:
    """An interval of differences; ``None`` for too few prompts, and of rates where no prompt tells them apart."""
    return Interval(float(low), float(high)) if high - low > _NO_WIDTH else None


def quantile(n: int, level: float = BAND_LEVEL) -> float:
    """Student's, two-sided, of n prompts."""
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    return float(stdtrit(max(n - 1, 1), 1 - level / 2))


class _Crossing(NamedTuple):
    """Where paths have a cost, [B] each."""

    segment: np.ndarray
    share: np.ndarray
    reached: np.ndarray


def _crossing(cost: np.ndarray, wanted: float, otherwise: int = 0) -> _Crossing:
    """The first line of each path with the wanted cost, [B,J] → [B]. One that has none continues the line
    ``otherwise``."""
    if cost.shape[1] == 1:
        nothing = np.zeros(len(cost), int)
        return _Crossing(nothing, nothing.astype(float), np.isclose(cost[:, 0], wanted))
    above = cost - wanted
    near = np.abs(above) <= 1e-9 * np.maximum(1, np.abs(wanted))
    here = (above[:, :-1] * above[:, 1:] <= 0) | near[:, :-1] | near[:, 1:]
    reached = here.any(1)
    segment = np.where(reached, here.argmax(1), otherwise)
    rows = np.arange(len(cost))
    start, end = above[rows, segment], above[rows, segment + 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(np.abs(start - end) > 1e-12, start / (start - end), 0.0)
    share = np.where(reached, share.clip(0, 1), share.clip(-_BEYOND, 1 + _BEYOND))
    return _Crossing(segment, share, reached)


def _between(difference: np.ndarray, found: _Crossing) -> np.ndarray:
    rows, last = np.arange(len(difference)), difference.shape[1] - 1
    start, end = difference[rows, found.segment], difference[rows, np.minimum(found.segment + 1, last)]
    return start + found.share * (end - start)
