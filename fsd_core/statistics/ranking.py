"""Rules at matched points: which loses least at one cost, and which is fastest within a loss.

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
from typing import NamedTuple

import numpy as np

from fsd_core.statistics.intervals import Interval
from fsd_core.statistics.noninferiority import about, quantiles_of_power
from fsd_core.statistics.tradeoff_curves import (
    BAND_LEVEL,
    CurvePoints,
    Curves,
    PathPosition,
    nondegenerate_interval,
    quantile,
)

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
