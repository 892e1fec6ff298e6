"""Forecasts for a setting while it is selected, and its results on fresh prompts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np

from fsd_core.calibration.measured import (
    Measurements,
    acceptance_rates,
    gains,
    speedup,
    steady_speedup,
)
from fsd_core.config import DecodingConfig
from fsd_core.config.calibration_config import FEWEST_CHOOSING, SIGNIFICANCE_LEVEL, CalibrationConfig
from fsd_core.statistics import betting
from fsd_core.statistics.intervals import Interval

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
    """share of prompts solved less the target's; ``None`` if nothing is scored"""
    at_least: float | None
    """lower confidence bound of ``difference``; ``None`` if accuracy is not the goal, 0 if nothing is lost"""
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
        return betting.together(self.values, self.clusters, self.most, self.bound)

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
        self._stakes = betting.stakes(self._earlier, self._bound)

    def until(self, end: int) -> TrialStatus:
        """Return the status after the fresh prompts before ``end``."""
        config, goal = self._config, self._config.goal
        preferred = rank(config, self._evidence, self._decoding, self._exact, end)
        bet = self._values(end)
        if goal == "speed":
            return TrialStatus(len(bet.values) >= 2 * FEWEST_CHOOSING, 1.0, preferred)
        capital = betting.capital(bet.together, self._bound, self._stakes)
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
        groups = betting.lacking(
            bet.together, self._earlier, self._bound, self._stakes, self._level, int(remaining / bet.each)
        )
        return None if groups is None else math.ceil(groups * bet.each)

    def finding(self, end: int) -> SettingResult:
        """Return the result on the fresh prompts before ``end``."""
        bet, at_least = self._values(end), None
        if self._config.goal == "accuracy" and len(bet.values):
            at_least = 2 * betting.lower_bound(bet.values, self._stakes, self._level, bet.clusters, bet.most) - 1
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
    solved, rates = (
        gains(evidence, decoding, config.target, start, end).values(),
        acceptance_rates(evidence, decoding, start, end).values(),
    )
    exactly, alone = (speedup(evidence, decoding, other, start, end) for other in (exact, config.target))
    fresh = len(evidence.both(decoding, config.target, start, end)) if start else 0
    return SettingResult(
        decoding, fresh, sure, fmean(solved) if solved else None, at_least, fmean(rates) if rates else None,
        exactly.value if exactly else None, exactly.interval if exactly else None, alone.value if alone else None,
    )  # fmt: skip
