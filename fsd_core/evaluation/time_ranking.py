"""Ranking of settings by time per answer, no finer than the machine allows.

Times of two settings are told apart only if the median of their ratios, prompt by prompt, leaves no doubt which is
less, and if they differ by more than :data:`LEAST_TOLD_APART` and by more than the share of the time that other
programs took, which could have fallen on either. Of the settings that are not told apart from the fastest, those whose
ratio to it may be 1 come first, by target passes, which do not depend on the machine; the others follow by the lower
bound of their ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Generic, NamedTuple, TypeVar

from fsd_core.conditions import listed, taken
from fsd_core.evaluation.versus import answered
from fsd_core.metrics import Generated
from fsd_core.statistics.intervals import median_interval

LEAST_TOLD_APART = 0.03
"""relative difference in time by which the same measurement on a quiet machine differs from one time to the next"""

K = TypeVar("K")
Prompts = Mapping[int, Generated]
"""by position"""


class TimeRanking(NamedTuple, Generic[K]):
    """The setting to prefer by time, and those that are as fast."""

    first: K
    """of the fastest and those whose time may be the same, the one with the fewest target passes"""
    equal: tuple[K, ...]
    """the others that are not told apart from the fastest, the next to prefer first; empty if time alone decides"""
    within: float
    """largest relative difference in time between the fastest and these"""
    taken: float | None
    """share of the compared time that other programs took; ``None`` if unknown"""


def equal_text(names: Sequence[str], within: float) -> str:
    """Return that the named settings are equal in time: ``γ 12 to 16 are equal within 3 % in time per answer``.

    Settings that differ in their draft length alone are named by it.
    """
    share = f"are equal within {max(1, math.ceil(100 * within)):g} % in time per answer"
    lengths, others = set[int](), set[str]()
    for name in names:
        parts = name.split(" · ")
        length = [part for part in parts if part.startswith("γ ") and part[2:].isdecimal()]
        lengths |= {int(part[2:]) for part in length}
        others.add(" · ".join(part for part in parts if part not in length))
    if len(others) == 1 and len(lengths) == len(names) > 1:
        ends = min(lengths), max(lengths)
        return f"{others.pop()}: γ {ends[0]} {'and' if len(names) == 2 else 'to'} {ends[1]} {share}"
    return f"{listed(names)} {share}"


def rank_by_time(prompts: Mapping[K, Prompts]) -> TimeRanking[K]:
    """Return the ranking of some settings, each with its prompts. Raises ``ValueError`` for none."""
    share = taken((g.seconds, g.cpu_seconds) for side in prompts.values() for g in side.values() if g.timed)
    fastest = _fastest(prompts)
    equal = [key for key in prompts if key != fastest and not _is_slower(prompts[key], prompts[fastest], share or 0.0)]
    group = sorted(
        [fastest, *equal],
        key=lambda key: (_at_least(prompts[key], prompts[fastest]), _passes(prompts[key], prompts[fastest])),
    )
    within = max((abs(_steady_ratio(prompts[key], prompts[fastest]) - 1) for key in equal), default=0.0)
    return TimeRanking(group[0], tuple(group[1:]), within, share)


def _fastest(prompts: Mapping[K, Prompts]) -> K:
    """Return the setting with the least steady time, each held against the first on the prompts that both did."""
    keys = list(prompts)
    if not keys:
        raise ValueError("There is nothing to rank.")
    return min(keys, key=lambda key: _steady_ratio(prompts[key], prompts[keys[0]]))


def _is_slower(run: Prompts, fastest: Prompts, share: float) -> bool:
    """Return whether a setting is surely slower than the fastest."""
    return _at_least(run, fastest) > 1 and _steady_ratio(run, fastest) > 1 + max(LEAST_TOLD_APART, share)


def _at_least(run: Prompts, fastest: Prompts) -> float:
    """Return the lower bound of the median ratio of times, prompt by prompt; 1 where it may be 1 or less."""
    keys = _both(run, fastest)
    ends = median_interval([run[key].seconds / fastest[key].seconds for key in keys]) if keys else None
    return 1.0 if ends is None or _steady_ratio(run, fastest) <= 1 + LEAST_TOLD_APART else max(1.0, ends.low)


def _steady_ratio(run: Prompts, other: Prompts) -> float:
    """Return the ratio of times per answer as on a machine that never pauses; 1 without prompts in common."""
    keys = _both(run, other)
    return steady_seconds([run[key] for key in keys]) / steady_seconds([other[key] for key in keys]) if keys else 1.0


def _passes(run: Prompts, other: Prompts) -> float:
    """Return the ratio of target passes per answer on the prompts in common; 1 without any."""
    keys = answered(run, other)
    below = sum(other[key].rounds for key in keys)
    return sum(run[key].rounds for key in keys) / below if below else 1.0


def _both(run: Prompts, other: Prompts) -> list[int]:
    return [key for key in answered(run, other, timed=True) if run[key].seconds > 0 < other[key].seconds]


def steady_seconds(counts: Sequence[Generated]) -> float:
    """Return Σ rounds times the median of seconds per round: a pause of the machine in one prompt hides nothing.

    An engine tells no rounds, so its tokens take their place.
    """
    rounds = [max(1, count.rounds or count.tokens) for count in counts]
    return sum(rounds) * median(count.seconds / n for count, n in zip(counts, rounds, strict=True))
