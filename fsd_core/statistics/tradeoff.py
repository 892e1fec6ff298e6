"""Quality against cost along rules' knobs, and which rule loses least.

Quality against cost along a rule's knob, resampled over prompts: the loss of several rules at one common cost.

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

Rules at matched points: which loses least at one cost, and which is fastest within a loss.

**Ranks.** At one cost all pairs of rules are compared at once: Student's statistics of their paired differences against
the 95 % quantile of their maximum in the resamples (single-step maxT, Westfall and Young 1993). So the chance that any
rule is falsely said to lose more than the first is 5 %, for any number of rules. Rules that cannot be distinguished are
tied.

**Within a loss.** The fastest cost within m points is where the curve was last at or above −m. Its interval follows
from the curve's band: the near end is where the lower end first falls below −m, the far end where the upper end last
reaches −m. Neither needs a monotone curve. Ranks compare such intervals at Bonferroni's level, 5 % over the number of
rules, which is conservative. A rule that may be within the loss up to its loosest measured setting is not said to be
slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fsd_core.statistics.intervals import FEWEST_PROMPTS, Interval, sums
from fsd_core.statistics.paired import about, quantiles_of_power

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


RATIOS = (1.1, 1.2, 1.3, 1.5, 2.0)
"""cost reductions in the table at equal cost"""
MARGINS_LISTED = (1.0, 2.0, 5.0)
"""points in the table at equal accuracy"""
LEADS, TIED, BEHIND, OUTSIDE = "leads", "tied", "behind", "outside"
"""ranks: first, not distinguishable from the first, significantly behind it, not measured there"""


class AtCost(NamedTuple):
    """A family's loss where its cost is the reference's over ``ratio``."""

    family: str
    rank: str | None
    """``None`` if the measurements do not allow a ranking"""
    difference: float | None = None
    """quality less the target's, -1 to 1 for shares; ``None`` outside the measured range"""
    interval: Interval | None = None
    position: PathPosition | None = None
    prompts: int | None = None
    """if tied: about how many would separate it from the first"""


class WithinLoss(NamedTuple):
    """A family's cost reduction while it loses at most so many points."""

    family: str
    rank: str
    ratio: float | None = None
    """``None`` if even its strictest measured setting loses more"""
    interval: Interval | None = None
    """over the measured settings; starts at 0 if the prompts show none of them to be within the loss"""
    is_open: bool = False
    """whether looser settings than the measured ones may be within the loss"""
    position: PathPosition | None = None
    is_shown: bool = False
    """whether the prompts show a setting faster than the strictest measured one to be within the loss"""
    prompts: int | None = None
    """if they show none: about how many prompts would show one"""


Paths = Mapping[str, Sequence[int]]
"""the settings of each family as columns of the measurements, strictest first"""


def at_ratio(curves: Curves, paths: Paths, ratio: float) -> list[AtCost]:
    """Return the families at the reference's cost over ``ratio``, least loss first."""
    points = {name: curves.along(path, [1 / ratio]) for name, path in paths.items()}
    inside = sorted((f for f, a in points.items() if a.places[0]), key=lambda f: -points[f].value[0])
    unmeasured = [AtCost(name, OUTSIDE) for name in points if name not in inside]
    if not inside:
        return unmeasured
    values = np.array([points[name].value[0] for name in inside])
    resampled = np.column_stack([points[name].resampled[:, 0] for name in inside])
    low, high = curves.ends(values, resampled)
    ranks, needed = _ranks(curves, values, resampled)
    ranked = [
        AtCost(
            name, ranks[i], float(values[i]), nondegenerate_interval(low[i], high[i]), points[name].places[0],
            needed[i] if ranks[i] == TIED else None,
        )
        for i, name in enumerate(inside)
    ]  # fmt: skip
    return ranked + unmeasured


def _ranks(curves: Curves, values: np.ndarray, resampled: np.ndarray) -> tuple[list[str], list[int | None]]:
    """Return the rank of each value, best first, and about how many prompts would separate it from the best."""
    count = len(values)
    if count == 1 or math.isnan(curves.error(resampled[:, :1])[0]):
        return [LEADS] + [TIED] * (count - 1), [None] * count
    first, second = np.triu_indices(count, 1)
    apart = resampled[:, first] - resampled[:, second]
    error = curves.error(apart)
    greatest = np.quantile((np.abs(apart - (values[first] - values[second])) / error).max(1), 1 - BAND_LEVEL)
    critical = max(_student(greatest, curves.n), quantile(curves.n))
    gaps, errors = (values[0] - values)[1:], error[: count - 1]  # pairs with the first come first
    behind = gaps * curves.shrunk > critical * errors
    power = quantiles_of_power()[1]
    needed = [
        None if gap < 1e-3 else about(max(curves.n * ((critical + power) * e / gap) ** 2, curves.n + 1))
        for gap, e in zip(gaps, errors, strict=True)
    ]
    return [LEADS, *(BEHIND if late else TIED for late in behind)], [None, *needed]


def within(curves: Curves, paths: Paths, points: float, exact: Collection[str] = ()) -> list[WithinLoss]:
    """Return the families by their cost reduction while they lose at most ``points``, fastest first.

    ``points`` are hundredths of a share or of a rate's unit. ``exact``: families whose strictest setting is known to
    lose nothing.
    """
    margin = points / 100
    rows, cautious = [], {}
    for name, path in paths.items():
        along = curves.along(path, curves.grid(path))
        levels = BAND_LEVEL, BAND_LEVEL / len(paths)
        ends = [_ends(curves, path, along, margin, level, name in exact) for level in levels]
        rows.append(_within(curves, name, path, along, margin, ends[0]))
        cautious[name] = ends[1]
    rows.sort(key=lambda row: -(row.ratio or 0))
    first = rows[0].family if rows and rows[0].ratio else None
    return [row._replace(rank=_rank(row, first, cautious)) for row in rows]


class _Ends(NamedTuple):
    """Interval of the last ratio within the margin."""

    interval: Interval
    is_shown: bool
    is_open: bool


def _within(
    curves: Curves, name: str, path: Sequence[int], along: CurvePoints, margin: float, ends: _Ends | None
) -> WithinLoss:
    last = _last(along.at, along.value, -margin)
    if last is None:
        return WithinLoss(name, OUTSIDE)
    position = curves.along(path, [last]).places[0]
    if ends is None:
        return WithinLoss(name, TIED, 1 / last, position=position, is_open=True)
    needed = None if ends.is_shown else _needed(curves, path, margin)
    return WithinLoss(name, TIED, 1 / last, ends.interval, ends.is_open, position, ends.is_shown, needed)


def _ends(
    curves: Curves, path: Sequence[int], along: CurvePoints, margin: float, level: float, is_exact: bool
) -> _Ends | None:
    """Return the ends by the band of the curve; ``None`` without a band.

    Where the band does not end within the path, use the cost intervals of its dearest and cheapest settings.
    """
    low, high = curves.ends(along.value, along.resampled, level)
    if np.isnan(low).any():
        return None
    near, far = _first_below(along.at, low, -margin), _last(along.at, high, -margin)
    far = along.at[0] if far is None else far
    costs = curves.cost_intervals(level)
    dearest, cheapest = (_cost_of(curves, path, costs, choose) for choose in (max, min))
    is_shown, is_open = bool(near < along.at[0] * (1 - 1e-9)), bool(far <= along.at[-1] * (1 + 1e-9))
    slow = cheapest.high if near <= along.at[-1] * (1 + 1e-9) else near if is_shown else dearest.high
    lowest = 1 / slow if is_shown or is_exact else 0.0
    return _Ends(Interval(lowest, 1 / (cheapest.low if is_open else far)), is_shown, is_open)


def _cost_of(curves: Curves, path: Sequence[int], costs: Sequence[Interval | None], choose: Callable) -> Interval:
    """Return the cost of a path's dearest or cheapest setting, with its interval."""
    k = choose(path, key=lambda column: curves.cost[column])
    return costs[k] or Interval(float(curves.cost[k]), float(curves.cost[k]))


def _rank(row: WithinLoss, first: str | None, cautious: Mapping[str, _Ends | None]) -> str:
    if row.ratio is None or first is None:
        return OUTSIDE
    if row.family == first:
        return LEADS
    current, best = cautious[row.family], cautious[first]
    behind = current and best and not current.is_open and best.interval.low > current.interval.high * (1 + 1e-9)
    return BEHIND if behind else TIED


def _needed(curves: Curves, path: Sequence[int], margin: float) -> int | None:
    """Return about how many prompts would show the easiest of a family's settings to be within the margin."""
    values, resampled = curves.settings()
    columns = [k for k in path if curves.cost[k] < curves.cost[path[0]] * (1 - 1e-9)]
    spare = [(values[k] + margin, float(curves.error(resampled[:, [k]])[0])) for k in columns]
    critical, power = quantile(curves.n), quantiles_of_power()[1]
    needed = [curves.n * ((critical + power) * error / gap) ** 2 for gap, error in spare if gap > 1e-3]
    return about(max(min(needed), curves.n + 1)) if needed and not math.isnan(min(needed)) else None


def _last(at: np.ndarray, value: np.ndarray, level: float) -> float | None:
    """Return the lowest cost up to which a curve, given dearest first, was last at or above a level."""
    reached = np.flatnonzero(value >= level)
    if not reached.size:
        return None
    i = int(reached[-1])
    return float(at[i]) if i + 1 == len(at) else _meets(at, value, i, level)


def _first_below(at: np.ndarray, value: np.ndarray, level: float) -> float:
    """Return the lowest cost before a curve first falls below a level; the dearest if it starts below."""
    below = np.flatnonzero(value < level)
    if not below.size:
        return float(at[-1])
    return float(at[0]) if below[0] == 0 else _meets(at, value, int(below[0]) - 1, level)


def _meets(at: np.ndarray, value: np.ndarray, i: int, level: float) -> float:
    fallen = value[i] - value[i + 1]
    share = (value[i] - level) / fallen if fallen > 1e-12 else 0.0
    return float(at[i] + min(max(share, 0.0), 1.0) * (at[i + 1] - at[i]))


def _student(z: float, n: int) -> float:
    """Return a normal quantile as Student's of n prompts."""
    from scipy.special import ndtr, stdtrit

    return float(stdtrit(n - 1, ndtr(z)))
