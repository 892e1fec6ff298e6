"""Counts from a calibration's runs so far, and the figures of one setting that follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fsd_core.config import DecodingConfig
from fsd_core.statistics.intervals import Interval
from fsd_core.statistics.ratios import quotient_interval
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

    @property
    def started(self) -> tuple[DecodingConfig, ...]:
        """Settings that have runs, with or without prompts, in the order of creation."""
        return tuple(self.counts)

    def of(self, decoding: DecodingConfig) -> Counts:
        return self.counts.get(decoding, {})

    def lacks(self, decoding: DecodingConfig, start: int, end: int) -> bool:
        """Return whether a prompt of ``order[start:end]`` is not done yet."""
        done = self.of(decoding)
        return any(position not in done for position in self.order[start:end])

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

    def seconds_each(self, decoding: DecodingConfig) -> float:
        """Return the mean seconds of decoding a prompt; 0 before the first."""
        spent = [count.seconds for count in self.of(decoding).values()]
        return sum(spent) / len(spent) if spent else 0.0


def gains(evidence: Measurements, decoding: DecodingConfig, target: DecodingConfig, start: int, end: int) -> np.ndarray:
    """Return 1 for a prompt that only the setting solves, -1 for one that only the target solves, else 0. → float [n]

    A prompt that the setting failed counts as not solved. Prompts that the target failed or nothing scores are left
    out.
    """
    pairs = [(result.outcome, ref.outcome) for result, ref in evidence.both(decoding, target, start, end)]
    scored = [(result, ref) for result, ref in pairs if "unscored" not in (result, ref)]
    return np.array([(result == "correct") - float(ref == "correct") for result, ref in scored])


def acceptance_rates(evidence: Measurements, decoding: DecodingConfig, start: int, end: int) -> np.ndarray:
    """Return accepted / drafted tokens of each prompt that drafted any. → float [n] in 0 … 1"""
    done = evidence.of(decoding)
    counts = (done[i] for i in evidence.order[start:end] if i in done)
    return np.array([count.accepted / count.drafted for count in counts if count.drafted])


def speedup(evidence: Measurements, decoding: DecodingConfig, other: DecodingConfig, start: int, end: int) -> float:
    """Return how many answers a setting writes while another writes one, on the same prompts; NaN if they share none.

    Answers are counted, not tokens, so a rule gains nothing by longer answers.
    """
    timed = _timed(evidence, decoding, other, start, end)
    return sum(ref.seconds for _, ref in timed) / sum(count.seconds for count, _ in timed) if timed else math.nan


def steady_speedup(
    evidence: Measurements, decoding: DecodingConfig, other: DecodingConfig, start: int, end: int
) -> float:
    """Return :func:`speedup` as on a machine that never pauses: Σ rounds times the median of seconds per round.

    Used for ranking, since a pause of a second in one of eight prompts hides a rule that is twice as fast. Reported
    speed-ups use raw times.
    """
    timed = _timed(evidence, decoding, other, start, end)
    return (
        _steady_seconds([ref for _, ref in timed]) / _steady_seconds([count for count, _ in timed])
        if timed
        else math.nan
    )


def _steady_seconds(counts: Sequence[PromptCounts]) -> float:
    rounds = [max(1, count.rounds) for count in counts]
    return sum(rounds) * float(np.median([count.seconds / n for count, n in zip(counts, rounds, strict=True)]))


def speedup_interval(
    evidence: Measurements, decoding: DecodingConfig, other: DecodingConfig, start: int, end: int
) -> Interval | None:
    """Return the 95 % interval of :func:`speedup`; ``None`` if the prompts are too few."""
    if not (timed := _timed(evidence, decoding, other, start, end)):
        return None
    return quotient_interval([(ref.seconds, 1.0) for _, ref in timed], [(count.seconds, 1.0) for count, _ in timed])


def _timed(
    evidence: Measurements, decoding: DecodingConfig, other: DecodingConfig, start: int, end: int
) -> list[tuple[PromptCounts, PromptCounts]]:
    """Return the counts of both settings for each prompt that took both some time."""
    return [
        (count, ref) for count, ref in evidence.both(decoding, other, start, end) if count.seconds > 0 < ref.seconds
    ]
