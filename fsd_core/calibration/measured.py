"""Counts from a calibration's runs so far, and the figures of one setting that follow from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fsd_core.conditions import taken
from fsd_core.config import DecodingConfig
from fsd_core.evaluation.time_ranking import TimeRanking, rank_by_time, steady_seconds
from fsd_core.evaluation.versus import Versus, versus
from fsd_core.formatting import count
from fsd_core.metrics import METRICS
from fsd_core.statistics.clusters import by_group, clustered_wilson
from fsd_core.statistics.intervals import Interval
from fsd_core.storage.records import PromptCounts

Counts = Mapping[int, PromptCounts]
"""by prompt position"""


@dataclass(frozen=True)
class Measurements:
    """Counts of every setting and of the target alone, by prompt position."""

    order: Sequence[int]
    """prompt positions in the order of use"""
    counts: Mapping[DecodingConfig, Counts]
    failed: Mapping[DecodingConfig, str] = field(default_factory=dict)
    """settings that cannot be measured, each with the reason as a sentence"""
    again: Mapping[DecodingConfig, Counts] = field(default_factory=dict)
    """counts of the settings that were timed again; they decide nothing but what is said of times in the end"""
    groups: Mapping[int, str] = field(default_factory=dict)
    """the group of each prompt that has one, by position; prompts of a group depend on each other and stand together
    in ``order``"""

    def clusters(self, positions: Sequence[int]) -> np.ndarray:
        """Return the group of each prompt as a number from 0; a prompt without one has its own. → int [n]"""
        return by_group(positions, self.groups)

    @cached_property
    def largest_cluster(self) -> int:
        """The number of prompts of the largest group."""
        return int(np.bincount(self.clusters(self.order)).max(initial=1))

    def is_whole(self, start: int, end: int) -> Callable[[int], bool]:
        """Return whether a prompt's group lies in ``order[start:end]`` as a whole."""
        outside = {self.groups.get(position, "") for position in (*self.order[:start], *self.order[end:])} - {""}
        return lambda position: self.groups.get(position) not in outside

    @property
    def started(self) -> tuple[DecodingConfig, ...]:
        """Settings that have runs, with or without prompts, in the order of creation."""
        return tuple(self.counts)

    def of(self, decoding: DecodingConfig) -> Counts:
        return self.counts.get(decoding, {})

    def times(self, together: Sequence[DecodingConfig], decoding: DecodingConfig, start: int, end: int) -> Counts:
        """Return the counts of a setting whose times count, for the prompts of ``order[start:end]``.

        If all settings that it is held against (``together``) were timed again, these are the counts of that time, for
        whatever prompts it took.
        """
        if all(self.again.get(one) for one in together):
            return self.again.get(decoding, {})
        done = self.of(decoding)
        return {i: done[i] for i in self.order[start:end] if i in done}

    def lacks(self, decoding: DecodingConfig, start: int, end: int) -> bool:
        """Return whether a prompt of ``order[start:end]`` is not done yet."""
        done = self.of(decoding)
        return any(position not in done for position in self.order[start:end])

    def lacks_any(self, decodings: Sequence[DecodingConfig], start: int, end: int) -> bool:
        """Return whether one of the settings lacks a prompt of ``order[start:end]``, or there are fewer."""
        return len(self.order) < end or any(self.lacks(decoding, start, end) for decoding in decodings)

    def both(self, decoding: DecodingConfig, other: DecodingConfig, start: int, end: int) -> list[tuple]:
        """Return the counts of two settings for the prompts of ``order[start:end]`` that both have and ``other`` did
        not fail."""
        counts, other_counts = self.of(decoding), self.of(other)
        pairs = [(counts[i], other_counts[i]) for i in self.order[start:end] if i in counts and i in other_counts]
        return [(count, ref) for count, ref in pairs if ref.outcome != "failed"]

    def seconds(self, end: int) -> float:
        """Return the seconds spent on decoding the first ``end`` prompts with all settings."""
        wanted = set(self.order[:end])
        return sum(
            count.seconds for counts in self.counts.values() for position, count in counts.items() if position in wanted
        )

    def taken(self, decodings: Sequence[DecodingConfig], end: int) -> float | None:
        """Return the share of the time of the settings' first ``end`` prompts that other programs took."""
        counts = [count for one in decodings for count in self.times(decodings, one, 0, end).values()]
        return taken((count.seconds, count.cpu_seconds) for count in counts)

    def seconds_each(self, decoding: DecodingConfig) -> float:
        """Return the mean seconds of decoding a prompt; 0 before the first."""
        spent = [count.seconds for count in self.of(decoding).values()]
        return sum(spent) / len(spent) if spent else 0.0


class TargetAccuracy(NamedTuple):
    """What the target alone solves of the prompts that it did."""

    solved: int
    prompts: int
    interval: Interval

    @property
    def text(self) -> str:
        """Such as ``160 of 176 prompts (91 %, 86 to 94)``."""
        share, low, high = (f"{100 * part:.0f}" for part in (self.solved / self.prompts, *self.interval))
        return f"{self.solved:,} of {count(self.prompts, 'prompt')} ({share} %, {low} to {high})"

    def is_next_to_nothing(self, margin: float) -> bool:
        """Whether it is an eighth at most, of which ``margin`` points may be the half."""
        return 8 * self.solved <= self.prompts and self.interval.low <= 2 * margin / 100


def target_accuracy(evidence: Measurements, target: DecodingConfig) -> TargetAccuracy | None:
    """Return the target's accuracy on the prompts that it did; ``None`` if nothing scores them."""
    outcomes = {i: count.outcome for i, count in evidence.of(target).items() if count.outcome != "unscored"}
    hits = [outcome == "correct" for outcome in outcomes.values()]
    if not hits:
        return None
    return TargetAccuracy(sum(hits), len(hits), clustered_wilson(hits, evidence.clusters([*outcomes])))


def gains(
    evidence: Measurements, decoding: DecodingConfig, target: DecodingConfig, start: int, end: int
) -> dict[int, float]:
    """Return :func:`gained` of the prompts of ``order[start:end]``."""
    return gained(evidence.of(decoding), evidence.of(target), evidence.order[start:end])


def gained(done: Counts, reference: Counts, positions: Iterable[int]) -> dict[int, float]:
    """Return 1 for a prompt that only the setting solves, -1 for one that only the target solves, else 0, by position.

    A prompt that the setting failed counts as not solved. Prompts that the target failed or nothing scores are left
    out.
    """
    both = [(i, done[i].outcome, reference[i].outcome) for i in positions if i in done and i in reference]
    return {
        i: (result == "correct") - float(ref == "correct")
        for i, result, ref in both
        if ref != "failed" and "unscored" not in (result, ref)
    }


def acceptance_rates(evidence: Measurements, decoding: DecodingConfig, start: int, end: int) -> dict[int, float]:
    """Return accepted / drafted tokens of each prompt that drafted any, 0 … 1, by position."""
    done = evidence.of(decoding)
    counts = ((i, done[i]) for i in evidence.order[start:end] if i in done)
    return {i: count.accepted / count.drafted for i, count in counts if count.drafted}


def speedup(
    evidence: Measurements, decoding: DecodingConfig, other: DecodingConfig, start: int, end: int
) -> Versus | None:
    """Return how many times as fast a setting is by time per answer, with its 95 % interval; ``None`` without prompts
    that both answered.

    Answers are counted, not tokens, so a rule gains nothing by longer answers. It is the figure that Compare and a
    proposal give for the same prompts (:mod:`fsd_core.evaluation.versus`).
    """
    both = decoding, other
    sides = [evidence.times(both, side, start, end) for side in both]
    return versus(METRICS["seconds_per_answer"], *sides)


def steady_speedup(
    evidence: Measurements, decoding: DecodingConfig, other: DecodingConfig, start: int, end: int
) -> float:
    """Return :func:`speedup` as on a machine that never pauses, by the times that were measured first.

    Used while settings are selected, since a pause of a second in one of eight prompts hides a rule that is twice as
    fast. Reported speed-ups use raw times.
    """
    timed = _timed(evidence, decoding, other, start, end)
    if not timed:
        return math.nan
    return steady_seconds([ref for _, ref in timed]) / steady_seconds([count for count, _ in timed])


def ranking(evidence: Measurements, decodings: Sequence[DecodingConfig], end: int) -> TimeRanking[DecodingConfig]:
    """Return the ranking of settings by time per answer on the prompts before ``end``."""
    return rank_by_time({decoding: evidence.times(decodings, decoding, 0, end) for decoding in decodings})


def _timed(
    evidence: Measurements, decoding: DecodingConfig, other: DecodingConfig, start: int, end: int
) -> list[tuple[PromptCounts, PromptCounts]]:
    """Return the counts of both settings for each prompt that took both some time."""
    return [
        (count, ref) for count, ref in evidence.both(decoding, other, start, end) if count.seconds > 0 < ref.seconds
    ]
