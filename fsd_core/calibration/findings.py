"""Counts of a calibration's runs so far, and what they say of its settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fsd_core.config import DecodingConfig
from fsd_core.config.calibration_config import FEWEST_CHOOSING, SIGNIFICANCE_LEVEL, CalibrationConfig
from fsd_core.errors import FsdError
from fsd_core.evaluation.versus import TimeRanking, Versus, rank_by_time, steady_seconds, versus
from fsd_core.metrics import METRICS, taken
from fsd_core.rules import Rule, Served
from fsd_core.statistics import paired
from fsd_core.statistics.intervals import Interval, by_group, clustered_wilson
from fsd_core.storage.records import PromptCounts
from fsd_core.texts import count

if TYPE_CHECKING:
    from fsd_core.storage.records import GenerationView, RunView
    from fsd_core.storage.repository import Repository


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


_SPEED_BREAKS_TIES = 1e-3


class Forecast(NamedTuple):
    """The forecast of a setting's trial, from the choosing prompts."""

    rank: float
    """value under the goal: more is better, exact SD has 1"""
    chance: float
    """probability that its bet is won on the fresh prompts"""

    @property
    def expected_value(self) -> float:
        """The expected rank if exact SD replaces a setting that does not become sure."""
        return 1 + self.chance * (self.rank - 1)


@dataclass(frozen=True)
class SettingResult:
    """A setting's result on prompts that had no part in choosing it."""

    decoding: DecodingConfig
    prompts: int
    """fresh prompts that it did"""
    sure: bool
    """whether it keeps the promise at the significance level; exact SD always keeps those of accuracy and speed"""
    difference: float | None
    """share of fresh prompts solved less the target's; ``None`` if it did none, or nothing is scored"""
    at_least: float | None
    """lower confidence bound of ``difference``; ``None`` without it or if accuracy is not the goal, 0 if nothing is
    lost"""
    acceptance: float | None
    """mean over answers of accepted / drafted tokens; ``None`` if nothing was drafted"""
    over_exact: float | None
    """answers written in the time that exact SD takes for one; ``None`` without fresh prompts"""
    over_exact_interval: Interval | None
    over_target: float | None


class TrialStatus(NamedTuple):
    """The status of a bet."""

    sure: bool
    chance: float
    """probability that the bet is still won"""
    rank: float


def rank(
    config: CalibrationConfig, evidence: Measurements, decoding: DecodingConfig, exact: DecodingConfig, end: int
) -> float:
    """Return the value by which the goal ranks settings that keep the promise.

    It is speed. For the goal ``acceptance`` it is accuracy, with speed to break ties.
    """
    speed = steady_speedup(evidence, decoding, exact, 0, end)
    if config.goal != "acceptance":
        return speed
    solved = gains(evidence, decoding, config.target, 0, end).values()
    return 2 + (fmean(solved) if solved else 0.0) + _SPEED_BREAKS_TIES * speed


class Stakes(NamedTuple):
    """Values that are bet on, and the bound that their mean must exceed to keep the promise."""

    values: np.ndarray
    """in 0 … 1, float [n]"""
    bound: float
    clusters: np.ndarray
    """the prompts that depend on each other, int [n], numbers from 0"""
    most: int
    """prompts of the largest cluster of the calibration"""

    @property
    def together(self) -> np.ndarray:
        """One value for each cluster, float [G] in 0 … 1."""
        return paired.together(self.values, self.clusters, self.most, self.bound)

    @property
    def each(self) -> float:
        """Mean number of prompts in a cluster, from 1."""
        return len(self.values) / (int(self.clusters.max()) + 1) if len(self.values) else 1.0


def values_of(
    config: CalibrationConfig, evidence: Measurements, decoding: DecodingConfig, start: int, end: int
) -> Stakes:
    """Return the values of the bet on ``order[start:end]``.

    Fresh prompts do not depend on those before, and a group counts once: behind the start, only those of groups that
    are whole in it have a value.
    """
    if config.goal == "acceptance":
        values, bound = acceptance_rates(evidence, decoding, start, end), config.acceptance
    else:
        gained = gains(evidence, decoding, config.target, start, end)
        values, bound = {i: (1 + gain) / 2 for i, gain in gained.items()}, config.accuracy_bound
    if start:
        whole = evidence.is_whole(start, end)
        values = {i: value for i, value in values.items() if whole(i)}
    clusters = evidence.clusters(list(values))
    return Stakes(np.array(list(values.values()), float), bound, clusters, evidence.largest_cluster)


def forecast(
    config: CalibrationConfig, evidence: Measurements, decoding: DecodingConfig, exact: DecodingConfig, end: int
) -> Forecast:
    """Return the forecast for a setting from the prompts before ``end``."""
    preferred = rank(config, evidence, decoding, exact, end)
    if config.goal == "speed":
        return Forecast(preferred, 1.0)
    bet = values_of(config, evidence, decoding, 0, end)
    fresh = int((config.limit - config.choosing) / bet.each)
    return Forecast(preferred, chance(bet.together, bet.bound, fresh, SIGNIFICANCE_LEVEL))


def chance(values: np.ndarray, bound: float, fresh: int, level: float) -> float:
    """Return the approximate probability that ``fresh`` more values show a mean above the bound.

    The mean of the fresh values is taken as normal around the mean of the observed ones. Half a 0 and half a 1 are
    added to these, since a few equal values say little about the spread. The mean must exceed the bound by as many
    standard errors as the level requires.
    """
    from scipy.special import ndtr, ndtri

    if fresh < 1:
        return 0.0
    n = len(values) + 1
    mean = (values.sum() + 0.5) / n
    spread = math.sqrt((((values - mean) ** 2).sum() + (mean**2 + (1 - mean) ** 2) / 2) / n)
    required = bound + spread / math.sqrt(fresh) * max(0.0, -float(ndtri(min(level, 0.5))))
    return float(ndtr((mean - required) / (spread * math.sqrt(1 / n + 1 / fresh))))


class SettingTrial:
    """The bet on one finalist. The significance level is shared among ``finalists`` bets."""

    def __init__(
        self,
        config: CalibrationConfig,
        evidence: Measurements,
        decoding: DecodingConfig,
        exact: DecodingConfig,
        finalists: int,
    ) -> None:
        self._config, self._evidence, self._decoding, self._exact = config, evidence, decoding, exact
        self._level = SIGNIFICANCE_LEVEL / max(1, finalists)
        earlier = values_of(config, evidence, decoding, 0, config.choosing)
        self._earlier, self._bound = earlier.together, earlier.bound
        self._stakes = paired.stakes_for(self._earlier, self._bound)

    def until(self, end: int) -> TrialStatus:
        """Return the status after the fresh prompts before ``end``."""
        config, goal = self._config, self._config.goal
        preferred = rank(config, self._evidence, self._decoding, self._exact, end)
        bet = self._values(end)
        if goal == "speed":
            return TrialStatus(len(bet.values) >= 2 * FEWEST_CHOOSING, 1.0, preferred)
        capital = paired.capital(bet.together, self._bound, self._stakes)
        observed = np.concatenate([self._earlier, bet.together])
        fresh = int((config.limit - end) / bet.each)
        remaining_chance = chance(observed, self._bound, fresh, self._level * capital)
        return TrialStatus(capital >= 1 / self._level, remaining_chance, preferred)

    def lacks(self, end: int, most: int | None = None) -> int | None:
        """Return how many more fresh prompts make it sure if they are like those so far.

        ``None`` if ``most`` are too few, by default all that remain.
        """
        bet, remaining = self._values(end), self._config.limit - end if most is None else most
        if self._config.goal == "speed":
            return max(0, 2 * FEWEST_CHOOSING - len(bet.values))
        groups = paired.lacking(
            bet.together, self._earlier, self._bound, self._stakes, self._level, int(remaining / bet.each)
        )
        return None if groups is None else math.ceil(groups * bet.each)

    def finding(self, end: int) -> SettingResult:
        """Return the result on the fresh prompts before ``end``."""
        bet, at_least = self._values(end), None
        if self._config.goal == "accuracy" and len(bet.values):
            at_least = 2 * paired.lower_bound(bet.values, self._stakes, self._level, bet.clusters, bet.most) - 1
        return _result(self._config, self._evidence, self._decoding, self._exact, end, self.until(end).sure, at_least)

    def _values(self, end: int) -> Stakes:
        return values_of(self._config, self._evidence, self._decoding, self._config.choosing, end)


def of_exact(config: CalibrationConfig, evidence: Measurements, exact: DecodingConfig, end: int) -> SettingResult:
    """Return the result of exact SD. It loses nothing, but may accept less than is wanted."""
    keeps_promise = config.goal != "acceptance"
    return _result(config, evidence, exact, exact, end, keeps_promise, 0.0 if keeps_promise else None)


def _result(
    config: CalibrationConfig, evidence: Measurements, decoding: DecodingConfig, exact: DecodingConfig, end: int,
    sure: bool, at_least: float | None,
) -> SettingResult:  # fmt: skip
    start = config.choosing if end > config.choosing else 0
    solved = gains(evidence, decoding, config.target, start, end).values() if start else ()
    rates = acceptance_rates(evidence, decoding, start, end).values()
    exactly, alone = (speedup(evidence, decoding, other, start, end) for other in (exact, config.target))
    fresh = len(evidence.both(decoding, config.target, start, end)) if start else 0
    return SettingResult(
        decoding, fresh, sure, fmean(solved) if solved else None, at_least if fresh else None,
        fmean(rates) if rates else None,
        exactly.value if exactly else None, exactly.interval if exactly else None, alone.value if alone else None,
    )  # fmt: skip


def check_knob(repository: Repository, config: CalibrationConfig, runs: Sequence[RunView]) -> None:
    """Raise ``FsdError`` if the knob of an engine does nothing, or if it counts no drafted tokens although a share of
    them is the goal.

    A knob does nothing if the engine wrote the same texts at its strict value and at the loosest of each rule, and
    drafted and accepted as many tokens. Nothing is checked for our own loop, before the first prompts are done, and
    where drafted tokens are not counted.
    """
    if config.endpoint is None:
        return
    first = {run.decoding: run for run in runs if not run.config.first and run.status == "finished"}
    strict = first.get(config.target)
    if strict is None:
        return
    texts = repository.generations(strict.id)
    accepted, drafted = sum(g.accepted for g in texts), sum(g.drafted for g in texts)
    if not drafted:
        if config.goal == "acceptance":
            raise FsdError(
                f"The endpoint '{config.endpoint.endpoint}' counts no drafted tokens, or wrote for others too, so no "
                "share of them can be promised: choose another goal."
            )
        return
    loosest = [first[decoding] for decoding in _loosest(config.decodings) if decoding in first]
    if loosest and all(_same(texts, repository.generations(run.id)) for run in loosest):
        labels = " and at ".join(run.decoding.label for run in loosest)
        raise FsdError(
            f"The knob of the endpoint '{config.endpoint.endpoint}' does nothing: at its strict value and at {labels} "
            f"it wrote the same {len(texts)} texts, and accepted {accepted} of {drafted} drafted tokens each time. "
            "Expected a server that is told its rule as docs/engines.md says, or wider values of the knob."
        )


def _loosest(decodings: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """Return the setting of each kind of rule whose knob is the most lenient."""
    kinds: dict[str, dict[float, DecodingConfig]] = {}
    knobs: dict[str, Rule] = {}
    for decoding in decodings:
        rule = decoding.acceptance.rule if isinstance(decoding.acceptance, Served) else None
        if rule is not None and rule.knob is not None and rule.knob_value is not None:
            kinds.setdefault(rule.kind, {})[rule.knob_value] = decoding
            knobs[rule.kind] = rule
    loosest = []
    for kind, settings in kinds.items():
        knob = knobs[kind].knob
        assert knob is not None
        loosest.append(settings[knob.by_leniency(settings)[-1]])
    return loosest


def _same(texts: Sequence[GenerationView], others: Sequence[GenerationView]) -> bool:
    def written(generations: Sequence[GenerationView]) -> list[tuple[int, str, int, int]]:
        return [(g.position, g.text, g.drafted, g.accepted) for g in generations]

    return written(texts) == written(others)
