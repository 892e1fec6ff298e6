"""What the runs of a calibration have shown so far, and what follows for one setting."""

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
"""by position of the prompt"""


@dataclass(frozen=True)
class Measurements:
    """What was counted of every setting and of the target alone, by position of the prompt."""

    order: Sequence[int]
    """the positions, in the order in which they are used"""
    counts: Mapping[DecodingConfig, Counts]
    failed: Mapping[DecodingConfig, str] = field(default_factory=dict)
    """settings that cannot be measured, with the sentence that says why"""

    @property
    def begun(self) -> tuple[DecodingConfig, ...]:
        """What has runs, with or without prompts, in the order in which they were made."""
        return tuple(self.counts)

    def of(self, decoding: DecodingConfig) -> Counts:
        return self.counts.get(decoding, {})

    def lacks(self, decoding: DecodingConfig, start: int, end: int) -> bool:
        """Whether a prompt from the ``start``-th to before the ``end``-th is not done yet."""
        done = self.of(decoding)
        return any(position not in done for position in self.order[start:end])

    def both(self, one: DecodingConfig, other: DecodingConfig, start: int, end: int) -> list[tuple]:
        """The counts of two settings for the prompts of a stretch that both have, but for those that only failed."""
        ours, theirs = self.of(one), self.of(other)
        pairs = [(ours[i], theirs[i]) for i in self.order[start:end] if i in ours and i in theirs]
        return [(own, its) for own, its in pairs if its.outcome != "failed"]

    def seconds(self, end: int) -> float:
        """Spent on decoding the first ``end`` prompts by all settings."""
        wanted = set(self.order[:end])
        return sum(
            count.seconds for counts in self.counts.values() for position, count in counts.items() if position in wanted
        )

    def seconds_each(self, decoding: DecodingConfig) -> float:
        """A prompt's decoding, on average; 0 before the first."""
        spent = [count.seconds for count in self.of(decoding).values()]
        return sum(spent) / len(spent) if spent else 0.0


def gains(evidence: Measurements, decoding: DecodingConfig, target: DecodingConfig, start: int, end: int) -> np.ndarray:
    """1 where the setting alone solves a prompt, -1 where the target alone does, else 0. → float [n]

    A prompt at which the setting failed is one that it does not solve. Prompts at which the target failed are left out,
    and those that nothing scores.
    """
    pairs = [(own.outcome, its.outcome) for own, its in evidence.both(decoding, target, start, end)]
    scored = [(own, its) for own, its in pairs if "unscored" not in (own, its)]
    return np.array([(own == "correct") - float(its == "correct") for own, its in scored])


def acceptance_rates(evidence: Measurements, decoding: DecodingConfig, start: int, end: int) -> np.ndarray:
    """Accepted tokens by drafted ones of each prompt that has any. → float [n] in 0 … 1"""
    done = evidence.of(decoding)
    counts = (done[i] for i in evidence.order[start:end] if i in done)
    return np.array([count.accepted / count.drafted for count in counts if count.drafted])


def speedup(evidence: Measurements, decoding: DecodingConfig, other: DecodingConfig, start: int, end: int) -> float:
    """How many answers a setting writes while another writes one, on the same prompts; NaN where they share none.

    Answers, not tokens: a rule that lengthens them gains nothing by that.
    """
    timed = _timed(evidence, decoding, other, start, end)
    return sum(its.seconds for _, its in timed) / sum(own.seconds for own, _ in timed) if timed else math.nan


def steady_speedup(
    evidence: Measurements, decoding: DecodingConfig, other: DecodingConfig, start: int, end: int
) -> float:
    """:func:`speedup` as a machine that never pauses would show it: Σ rounds times the median of seconds per round.

    What is chosen hangs on it, since in one of eight prompts a pause of a second hides a rule that is twice as fast;
    what is told is what was measured.
    """
    timed = _timed(evidence, decoding, other, start, end)
    return _steady([its for _, its in timed]) / _steady([own for own, _ in timed]) if timed else math.nan


def _steady(counts: Sequence[PromptCounts]) -> float:
    rounds = [max(1, count.rounds) for count in counts]
    return sum(rounds) * float(np.median([count.seconds / n for count, n in zip(counts, rounds, strict=True)]))


def speedup_interval(
    evidence: Measurements, decoding: DecodingConfig, other: DecodingConfig, start: int, end: int
) -> Interval | None:
    """The interval of 95 % of :func:`speedup`; ``None`` where too few prompts tell."""
    if not (timed := _timed(evidence, decoding, other, start, end)):
        return None
    return quotient_interval([(its.seconds, 1.0) for _, its in timed], [(own.seconds, 1.0) for own, _ in timed])


def _timed(
    evidence: Measurements, decoding: DecodingConfig, other: DecodingConfig, start: int, end: int
) -> list[tuple[PromptCounts, PromptCounts]]:
    """The counts of both, of each prompt that took both some time."""
    return [(own, its) for own, its in evidence.both(decoding, other, start, end) if own.seconds > 0 < its.seconds]
