"""What a calibration does next, given what its runs have shown: it has no other memory, so it goes on after any kill.

0. *Proposing*, where draft lengths are left open: replay says which settings are worth measuring
   (:mod:`fsd_core.calibration.proposing`), and those whose runs have begun are the ones that count.
1. *Choosing*: successive halving (Jamieson and Talwalkar 2016). All settings do 8 prompts, the better half of them 8
   more, the better half of those 16 more, and so on. The better ones are those from which most is to be expected: how
   much faster than exact SD a setting is, times the chance that it keeps the promise on the fresh prompts.
2. *Trying*: up to three finalists do fresh prompts, on which a bet is laid against each
   (:mod:`fsd_core.statistics.betting`). One whose bet earns as many times its stake as there are finalists,
   over the level, keeps the promise. The chance that any that does not keep it gets so far is at most the level,
   whatever was chosen before, since no fresh prompt had a part in that (union bound over the finalists).

It ends when one is sure and none that may still be sure is faster by a twentieth, when no bet can be won with the
prompts that are left, or when the time is spent. Exact SD needs no bet: it is what remains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fsd_core.calibration.findings import SettingResult, SettingTrial, hopes, of_exact
from fsd_core.calibration.measured import Measurements, steady_speedup
from fsd_core.config import DecodingConfig
from fsd_core.config.calibration_config import FEWEST_CHOOSING, FINALISTS, CalibrationConfig
from fsd_core.errors import FsdError

CHOOSING_SHARE = 0.5
"""of the time, at most, goes into choosing"""
TURN = 16
"""fresh prompts that the finalists do before the bets are looked at"""
HOPELESS = 0.02
CLOSE = 0.05
"""share of its speed by which another must be faster than a sure one to be tried on"""


@dataclass(frozen=True)
class CalibrationStep:
    """What is to be done next: some settings, on the prompts from ``start`` to before ``end`` in the order."""

    decodings: tuple[DecodingConfig, ...]
    start: int
    end: int
    lengths_open: bool = False
    """whether replay is to propose their draft lengths first"""
    sure: DecodingConfig | None = None
    """the best that keeps the promise already, where others may be better"""


@dataclass(frozen=True)
class Outcome:
    """How a calibration ended."""

    chosen: SettingResult
    """the setting to use: a finalist that keeps the promise, or exact SD"""
    reason: str
    """what ended it: ``sure``, ``nothing-faster`` (no finalist), ``hopeless``, ``prompts`` or ``minutes``"""
    finalists: tuple[SettingResult, ...]
    more: MoreWanted | None = None
    """where the minutes ended it: what decides if prompts go on like those so far"""
    close: tuple[DecodingConfig, ...] = ()
    """finalists left undecided because they are hardly faster than the chosen one"""


class MoreWanted(NamedTuple):
    """What is still wanted."""

    prompts: int
    minutes: float


def next_step(config: CalibrationConfig, evidence: Measurements) -> CalibrationStep | Outcome:
    """What is to be done next, or how it ended. Raises ``FsdError`` where the target or exact SD cannot be measured."""
    target, begun = config.target, evidence.begun or config.decodings
    alive = tuple(one for one in begun if one not in evidence.failed and one != target)
    if target in evidence.failed or not any(one.acceptance.lossless for one in alive):
        told = " ".join(dict.fromkeys(evidence.failed.values()))
        raise FsdError(told or "No run of exact SD is left to hold the others against: start the calibration anew.")
    in_time, done = True, 0
    for end in rungs(config.choosing):
        if not in_time or len(alive) == 1:
            break
        if missing := _missing(evidence, (target, *alive), done, end):
            return CalibrationStep(missing, done, end, lengths_open=bool(config.lengths) and not evidence.begun)
        done = end
        in_time = evidence.seconds(done) < CHOOSING_SHARE * 60 * config.minutes
        alive = _better_half(config, evidence, alive, done)
    exact = best_exact(evidence, alive, target, done)
    return _trying(config, evidence, exact, _finalists(config, evidence, alive, exact, done))


def rungs(choosing: int) -> list[int]:
    """After how many prompts the settings are halved: 8, 16, 32, … and all that choose."""
    ends = [FEWEST_CHOOSING * 2**i for i in range(int(math.log2(choosing / FEWEST_CHOOSING)) + 1)]
    return [*ends[:-1], choosing]


def _missing(
    evidence: Measurements, wanted: Sequence[DecodingConfig], start: int, end: int
) -> tuple[DecodingConfig, ...]:
    return tuple(one for one in wanted if one not in evidence.failed and evidence.lacks(one, start, end))


def best_exact(
    evidence: Measurements, alive: Sequence[DecodingConfig], target: DecodingConfig, end: int
) -> DecodingConfig:
    """The fastest of those that lose nothing."""
    return max(
        (one for one in alive if one.acceptance.lossless), key=lambda one: steady_speedup(evidence, one, target, 0, end)
    )


def _better_half(
    config: CalibrationConfig, evidence: Measurements, alive: Sequence[DecodingConfig], done: int
) -> tuple[DecodingConfig, ...]:
    """The better half of the lossy ones and of the exact ones, in the order in which they were given."""
    exact = best_exact(evidence, alive, config.target, done)
    lossy = {one: hopes(config, evidence, one, exact, done).worth for one in _asked(config, alive)}
    exacts = {one: steady_speedup(evidence, one, exact, 0, done) for one in alive if one.acceptance.lossless}
    kept = _best(lossy, max(FINALISTS, math.ceil(len(lossy) / 2))) + _best(exacts, math.ceil(len(exacts) / 2))
    return tuple(one for one in alive if one in kept)


def _asked(config: CalibrationConfig, alive: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """Those of which it is asked whether they keep the promise; that exact SD does is known, but for acceptance."""
    return [one for one in alive if config.goal == "acceptance" or not one.acceptance.lossless]


def _best(scored: Mapping[DecodingConfig, float], count: int) -> list[DecodingConfig]:
    return sorted(scored, key=lambda one: -scored[one])[:count]


def _finalists(
    config: CalibrationConfig, evidence: Measurements, alive: Sequence[DecodingConfig], exact: DecodingConfig, done: int
) -> list[DecodingConfig]:
    """Those of which the most is to be expected."""
    lossy = {one: hopes(config, evidence, one, exact, done) for one in _asked(config, alive)}
    hopeful = {one: hope.worth for one, hope in lossy.items() if hope.chance >= HOPELESS and hope.rank > 1}
    return _best(hopeful, FINALISTS)


def _trying(
    config: CalibrationConfig, evidence: Measurements, exact: DecodingConfig, finalists: Sequence[DecodingConfig]
) -> CalibrationStep | Outcome:
    trials = {one: SettingTrial(config, evidence, one, exact, len(finalists)) for one in finalists}
    still, end, close = list(finalists), config.choosing, list[DecodingConfig]()
    while True:
        stand = {one: trial.until(end) for one, trial in trials.items()}
        sure = [one for one in finalists if stand[one].sure]
        best = max(sure, key=lambda one: stand[one].rank, default=None)
        bar = -math.inf if best is None else stand[best].rank
        better = [
            one for one in still
            if not stand[one].sure and stand[one].hope > HOPELESS and stand[one].rank > bar
        ]  # fmt: skip
        still = [one for one in better if _clearly(config, stand[one].rank, bar)]
        close += [one for one in better if one not in still]
        reason = _ended(config, evidence, best, still, end) if finalists else "nothing-faster"
        if reason is not None:
            break
        until = min(end + TURN, config.limit)
        if missing := _missing(evidence, (config.target, exact, *still), end, until):
            return CalibrationStep(missing, end, until, sure=best)
        end = until
    found = {one: trial.finding(end) for one, trial in trials.items()}
    chosen = found[best] if best is not None else of_exact(config, evidence, exact, end)
    more = _more(evidence, config.target, exact, trials, still, end) if reason == "minutes" else None
    return Outcome(chosen, reason, tuple(found.values()), more, tuple(one for one in close if stand[one].rank > bar))


def _clearly(config: CalibrationConfig, rank: float, bar: float) -> bool:
    """Whether one is so much better than the best sure one, at the bar, that it is worth more prompts."""
    return config.goal == "acceptance" or rank > (1 + CLOSE) * bar


def _more(
    evidence: Measurements, target: DecodingConfig, exact: DecodingConfig,
    trials: Mapping[DecodingConfig, SettingTrial], still: Sequence[DecodingConfig], end: int,
) -> MoreWanted | None:  # fmt: skip
    """What makes the first of the undecided finalists sure if prompts go on like those so far; ``None`` where they are
    too few."""
    lacking = [prompts for one in still if (prompts := trials[one].lacks(end)) is not None]
    if not lacking:
        return None
    prompts = TURN * math.ceil(min(lacking) / TURN)
    seconds = sum(evidence.seconds_each(one) for one in dict.fromkeys((target, exact, *still)))
    return MoreWanted(prompts, prompts * seconds / 60)


def _ended(
    config: CalibrationConfig,
    evidence: Measurements,
    best: DecodingConfig | None,
    still: Sequence[DecodingConfig],
    end: int,
) -> str | None:
    """What ends the trial, if anything does."""
    if not still:
        return "sure" if best is not None else "hopeless"
    if end >= config.limit:
        return "prompts"
    return "minutes" if evidence.seconds(end) >= 60 * config.all_minutes else None
