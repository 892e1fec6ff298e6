"""What is hoped for a setting while it is chosen, and what is found of it on fresh prompts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fsd_core.calibration.measured import (
    Measurements,
    acceptance_rates,
    gains,
    speedup,
    speedup_interval,
    steady_speedup,
)
from fsd_core.config import DecodingConfig
from fsd_core.config.calibration_config import FEWEST_CHOOSING, SIGNIFICANCE_LEVEL, CalibrationConfig
from fsd_core.statistics import betting
from fsd_core.statistics.intervals import Interval

_SPEED_BREAKS_TIES = 1e-3


class Forecast(NamedTuple):
    """What is to be expected of a setting."""

    rank: float
    """what the goal prefers: more is better, exact SD has 1"""
    chance: float
    """that its bet is won on the fresh prompts"""

    @property
    def worth(self) -> float:
        """The expected rank, where exact SD takes the place of a setting that is not sure in the end."""
        return 1 + self.chance * (self.rank - 1)


@dataclass(frozen=True)
class SettingResult:
    """What is known of a setting from prompts that had no part in choosing it."""

    decoding: DecodingConfig
    prompts: int
    """fresh ones that it did"""
    sure: bool
    """whether it keeps the promise, at the level; of accuracy and of speed exact SD always does"""
    difference: float
    """share of prompts solved less the target's; NaN where nothing is scored"""
    at_least: float | None
    """the least difference that the level leaves; ``None`` where accuracy is not the goal, 0 where nothing is lost"""
    acceptance: float
    """mean over answers of accepted by drafted tokens; NaN where nothing was drafted"""
    over_exact: float
    """answers written while exact SD writes one; NaN without fresh prompts"""
    over_exact_interval: Interval | None
    over_target: float


class TrialStatus(NamedTuple):
    """How a bet stands."""

    sure: bool
    hope: float
    """the chance that it is still won"""
    rank: float


def rank(
    config: CalibrationConfig, evidence: Measurements, one: DecodingConfig, exact: DecodingConfig, end: int
) -> float:
    """What the goal prefers among settings that keep the promise: speed; of those that accept enough, accuracy."""
    faster = steady_speedup(evidence, one, exact, 0, end)
    if config.goal != "acceptance":
        return faster
    solved = gains(evidence, one, config.target, 0, end)
    return 2 + (float(solved.mean()) if len(solved) else 0.0) + _SPEED_BREAKS_TIES * faster


def values_of(
    config: CalibrationConfig, evidence: Measurements, one: DecodingConfig, start: int, end: int
) -> tuple[np.ndarray, float]:
    """What the bet is on: values in 0 … 1, float [n], and the bound of their mean that keeps the promise."""
    if config.goal == "acceptance":
        return acceptance_rates(evidence, one, start, end), config.acceptance
    return (1 + gains(evidence, one, config.target, start, end)) / 2, (1 - config.margin / 100) / 2


def hopes(
    config: CalibrationConfig, evidence: Measurements, one: DecodingConfig, exact: DecodingConfig, end: int
) -> Forecast:
    """What the first prompts, up to before ``end``, let expect of a setting."""
    preferred = rank(config, evidence, one, exact, end)
    if config.goal == "speed":
        return Forecast(preferred, 1.0)
    values, bound = values_of(config, evidence, one, 0, end)
    return Forecast(preferred, chance(values, bound, config.limit - config.choosing, SIGNIFICANCE_LEVEL))


def chance(values: np.ndarray, bound: float, fresh: int, level: float) -> float:
    """About how likely ``fresh`` more values show that their mean is above the bound.

    The mean of the fresh ones is normal around that of the known ones, to which half a 0 and half a 1 are added, since
    no difference among few says little. It must exceed the bound by as many standard errors as the level asks.
    """
    from scipy.special import ndtr, ndtri

    if fresh < 1:
        return 0.0
    n = len(values) + 1
    mean = (values.sum() + 0.5) / n
    spread = math.sqrt((((values - mean) ** 2).sum() + (mean**2 + (1 - mean) ** 2) / 2) / n)
    asked = bound + spread / math.sqrt(fresh) * max(0.0, -float(ndtri(min(level, 0.5))))
    return float(ndtr((mean - asked) / (spread * math.sqrt(1 / n + 1 / fresh))))


class SettingTrial:
    """The bet on one finalist. ``finalists``: among so many the level is shared."""

    def __init__(
        self,
        config: CalibrationConfig,
        evidence: Measurements,
        one: DecodingConfig,
        exact: DecodingConfig,
        finalists: int,
    ) -> None:
        self._config, self._evidence, self._one, self._exact = config, evidence, one, exact
        self._level = SIGNIFICANCE_LEVEL / max(1, finalists)
        self._earlier, self._bound = values_of(config, evidence, one, 0, config.choosing)
        self._begun = betting.stakes(self._earlier, self._bound)

    def until(self, end: int) -> TrialStatus:
        """How it stands after the fresh prompts up to before ``end``."""
        config, goal = self._config, self._config.goal
        preferred = rank(config, self._evidence, self._one, self._exact, end)
        values = self._values(end)
        if goal == "speed":
            return TrialStatus(len(values) >= 2 * FEWEST_CHOOSING, 1.0, preferred)
        capital = betting.capital(values, self._bound, self._begun)
        both = np.concatenate([self._earlier, values])
        hope = chance(both, self._bound, config.limit - end, self._level * capital)
        return TrialStatus(capital >= 1 / self._level, hope, preferred)

    def lacks(self, end: int) -> int | None:
        """So many more fresh prompts make it sure if they are as those so far; ``None`` where all that are left do
        not."""
        values, left = self._values(end), self._config.limit - end
        if self._config.goal == "speed":
            return max(0, 2 * FEWEST_CHOOSING - len(values))
        return betting.lacking(values, self._earlier, self._bound, self._begun, self._level, left)

    def finding(self, end: int) -> SettingResult:
        """What the fresh prompts up to before ``end`` say of the setting."""
        values, at_least = self._values(end), None
        if self._config.goal == "accuracy" and len(values):
            at_least = 2 * betting.lower_bound(values, self._begun, self._level) - 1
        return _finding(self._config, self._evidence, self._one, self._exact, end, self.until(end).sure, at_least)

    def _values(self, end: int) -> np.ndarray:
        return values_of(self._config, self._evidence, self._one, self._config.choosing, end)[0]


def of_exact(config: CalibrationConfig, evidence: Measurements, exact: DecodingConfig, end: int) -> SettingResult:
    """What is known of exact SD, which loses nothing, but need not accept as much as is wanted."""
    keeps = config.goal != "acceptance"
    return _finding(config, evidence, exact, exact, end, keeps, 0.0 if keeps else None)


def _finding(
    config: CalibrationConfig, evidence: Measurements, one: DecodingConfig, exact: DecodingConfig, end: int,
    sure: bool, at_least: float | None,
) -> SettingResult:  # fmt: skip
    start = config.choosing if end > config.choosing else 0
    solved, rates = gains(evidence, one, config.target, start, end), acceptance_rates(evidence, one, start, end)
    fresh = len(evidence.both(one, config.target, start, end)) if start else 0
    return SettingResult(
        one, fresh, sure, float(solved.mean()) if len(solved) else math.nan, at_least,
        float(rates.mean()) if len(rates) else math.nan, speedup(evidence, one, exact, start, end),
        speedup_interval(evidence, one, exact, start, end), speedup(evidence, one, config.target, start, end),
    )  # fmt: skip
