"""Planning a calibration's next step from what its runs have shown.

It has no other memory, so a calibration continues after any kill.

0. *Proposing*, if draft lengths are left open: replay proposes the settings worth measuring
   (:mod:`fsd_core.calibration.running`). Those whose runs have started are the ones that count.
1. *Choosing*: successive halving (Jamieson and Talwalkar 2016). All settings do 8 prompts, the better half of them 8
   more, the better half of those 16 more, and so on. Settings are ordered by expected value: how much faster than
   exact SD a setting is, times the probability that it keeps the promise on the fresh prompts.
2. *Trying*: up to three finalists do fresh prompts, on which a bet is placed against each
   (:mod:`fsd_core.statistics.paired`). A finalist keeps the promise once its bet has multiplied its stake by the
   number of finalists over the level. The probability that any finalist that breaks the promise gets so far is at most
   the level (union bound over the finalists). That holds whatever was chosen before, since no fresh prompt had a part
   in the choice.

The trial ends when one setting is sure and none that may still become sure is faster by a twentieth, when no bet can be
won with the remaining prompts, or when the time is spent. Exact SD needs no bet: it is the fallback.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fsd_core.calibration.findings import (
    Measurements,
    SettingResult,
    SettingTrial,
    TargetAccuracy,
    forecast,
    of_exact,
    rank,
    ranking,
    steady_speedup,
    target_accuracy,
)
from fsd_core.config import DecodingConfig
from fsd_core.config.calibration_config import FEWEST_CHOOSING, FINALISTS, CalibrationConfig
from fsd_core.errors import FsdError
from fsd_core.evaluation.versus import TimeRanking, rank_by_time

CHOOSING_SHARE = 0.5
"""maximum share of the time that choosing takes"""
TRIAL_ROUND = 16
"""fresh prompts of a trial round, after which the bets are looked at"""
HOPELESS = 0.02
CLOSE = 0.05
"""relative speed by which a setting must beat a sure one to be tried further"""
_MOST_LINES = 10_000
"""further prompts than which a task is not asked for more"""


@dataclass(frozen=True)
class CalibrationStep:
    """The next step: some settings, on the prompts from ``start`` to before ``end`` in the order."""

    decodings: tuple[DecodingConfig, ...]
    start: int
    end: int
    lengths_open: bool = False
    """whether replay must propose their draft lengths first"""
    sure: DecodingConfig | None = None
    """the best setting that already keeps the promise, if others may be better"""
    tried: int = 0
    """settings that these prompts are for, also those that are done with them"""


@dataclass(frozen=True)
class Outcome:
    """How a calibration ended."""

    chosen: SettingResult
    """the setting to use: a finalist that keeps the promise, or exact SD"""
    reason: str
    """why it ended: ``sure``, ``nothing-faster`` (no finalist), ``hopeless``, ``prompts`` or ``minutes``; or
    ``unsolved``: the target solves so little that a promise of its accuracy says nothing"""
    finalists: tuple[SettingResult, ...]
    more: MoreWanted | None = None
    """if the minutes ended it: the effort that decides if prompts continue like those so far"""
    close: tuple[DecodingConfig, ...] = ()
    """finalists left undecided because they are hardly faster than the chosen one"""
    equal: tuple[DecodingConfig, ...] = ()
    """settings that would do as well and are not told apart from the chosen one by time; it has fewer target passes"""
    equal_within: float = 0.0
    """largest relative difference in time between these"""
    timed: tuple[DecodingConfig, ...] = ()
    """settings whose times the verdict rests on: the target, exact SD, the finalists and the equal ones"""
    taken: float | None = None
    """share of their time that other programs took; ``None`` if unknown"""
    timed_again: bool = False
    """whether their times are those of a second time"""
    grouped: bool = False
    """whether prompts of the task depend on each other in groups, each of which counts once"""
    target: TargetAccuracy | None = None
    """``None`` if nothing is scored"""
    lines: int | None = None
    """where all the prompts there are decide nothing: how many more a task would need, if these go on like those so
    far; ``None`` if no number does, or enough are left"""


class MoreWanted(NamedTuple):
    """The additional effort that would decide."""

    prompts: int
    minutes: float


def next_step(config: CalibrationConfig, evidence: Measurements) -> CalibrationStep | Outcome:
    """Return the next step, or the outcome. Raises ``FsdError`` if the target or exact SD cannot be measured."""
    target, started = config.target, evidence.started or config.decodings
    is_candidate = target in config.decodings  # an engine's strict setting stands for its target too
    alive = tuple(s for s in started if s not in evidence.failed and (s != target or is_candidate))
    if target in evidence.failed or not any(setting.acceptance.is_exact for setting in alive):
        message = " ".join(dict.fromkeys(evidence.failed.values()))
        raise FsdError(message or "No run of exact SD is left to hold the others against: start the calibration anew.")
    in_time, done = True, 0
    for end in rungs(config.choosing):
        if not in_time or len(alive) == 1:
            break
        if missing := _missing(evidence, (target, *alive), done, end):
            is_open = bool(config.lengths) and not evidence.started
            return CalibrationStep(missing, done, end, lengths_open=is_open, tried=len({target, *alive}))
        done = end
        in_time = evidence.seconds(done) < CHOOSING_SHARE * 60 * config.minutes
        alive = _better_half(config, evidence, alive, done)
    exact = best_exact(evidence, alive, done)
    return _try_finalists(config, evidence, exact, _finalists(config, evidence, alive, exact, done))


def rungs(choosing: int) -> list[int]:
    """Return the numbers of prompts after which the settings are halved: 8, 16, 32, … and all that choose."""
    ends = [FEWEST_CHOOSING * 2**i for i in range(int(math.log2(choosing / FEWEST_CHOOSING)) + 1)]
    return [*ends[:-1], choosing]


def _missing(
    evidence: Measurements, settings: Sequence[DecodingConfig], start: int, end: int
) -> tuple[DecodingConfig, ...]:
    return tuple(
        setting
        for setting in dict.fromkeys(settings)
        if setting not in evidence.failed and evidence.lacks(setting, start, end)
    )


def best_exact(evidence: Measurements, alive: Sequence[DecodingConfig], end: int) -> DecodingConfig:
    """Return the lossless setting to prefer by time: of those as fast as the fastest, the one of fewest passes."""
    return _first_timed(evidence, [setting for setting in alive if setting.acceptance.is_exact], end).first


def _first_timed(evidence: Measurements, settings: Sequence[DecodingConfig], end: int) -> TimeRanking[DecodingConfig]:
    """Return the ranking by the times that were measured first, so that no decision changes when they are measured
    again."""
    wanted = evidence.order[:end]
    return rank_by_time({one: {i: evidence.of(one)[i] for i in wanted if i in evidence.of(one)} for one in settings})


def _better_half(
    config: CalibrationConfig, evidence: Measurements, alive: Sequence[DecodingConfig], done: int
) -> tuple[DecodingConfig, ...]:
    """Return the better half of the lossy and of the exact settings, in the given order."""
    exact = best_exact(evidence, alive, done)
    lossy = {
        setting: forecast(config, evidence, setting, exact, done).expected_value for setting in _unproven(config, alive)
    }
    exacts = {
        setting: steady_speedup(evidence, setting, exact, 0, done) for setting in alive if setting.acceptance.is_exact
    }
    best = _best(lossy, max(FINALISTS, math.ceil(len(lossy) / 2)))
    best += [
        exact,
        *_best({one: speed for one, speed in exacts.items() if one != exact}, math.ceil(len(exacts) / 2) - 1),
    ]
    return tuple(setting for setting in alive if setting in best)


def _unproven(config: CalibrationConfig, alive: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """Return the settings that must prove the promise. Exact SD keeps it by definition, except for acceptance."""
    return [setting for setting in alive if config.goal == "acceptance" or not setting.acceptance.is_exact]


def _best(scored: Mapping[DecodingConfig, float], count: int) -> list[DecodingConfig]:
    return sorted(scored, key=lambda setting: -scored[setting])[:count]


def _finalists(
    config: CalibrationConfig, evidence: Measurements, alive: Sequence[DecodingConfig], exact: DecodingConfig, done: int
) -> list[DecodingConfig]:
    """Return the settings with the highest expected value."""
    lossy = {setting: forecast(config, evidence, setting, exact, done) for setting in _unproven(config, alive)}
    promising = {
        setting: expected.expected_value
        for setting, expected in lossy.items()
        if expected.chance >= HOPELESS and expected.rank > 1
    }
    return _best(promising, FINALISTS)


def _try_finalists(
    config: CalibrationConfig, evidence: Measurements, exact: DecodingConfig, finalists: Sequence[DecodingConfig]
) -> CalibrationStep | Outcome:
    trials = {setting: SettingTrial(config, evidence, setting, exact, len(finalists)) for setting in finalists}
    undecided, end, close = list(finalists), config.choosing, list[DecodingConfig]()
    while True:
        status = {setting: trial.until(end) for setting, trial in trials.items()}
        sure = [setting for setting in finalists if status[setting].sure]
        best = max(sure, key=lambda setting: status[setting].rank, default=None)
        best_rank = -math.inf if best is None else status[best].rank
        better = [
            setting for setting in undecided
            if not status[setting].sure and status[setting].chance > HOPELESS and status[setting].rank > best_rank
        ]  # fmt: skip
        undecided = [setting for setting in better if _is_worth_trying(config, status[setting].rank, best_rank)]
        close += [setting for setting in better if setting not in undecided]
        reason = _end_reason(config, evidence, best, undecided, end) if finalists else "nothing-faster"
        if reason is not None:
            break
        next_end = min(end + TRIAL_ROUND, config.limit)
        if missing := _missing(evidence, (config.target, exact, *undecided), end, next_end):
            return CalibrationStep(missing, end, next_end, sure=best, tried=len({config.target, exact, *undecided}))
        end = next_end
    ranked = _ranked(config, evidence, sure, exact, end)
    best = None if best is None else ranked.first
    results = {setting: trial.finding(end) for setting, trial in trials.items()}
    selected = results[best] if best is not None else of_exact(config, evidence, exact, end)
    target = target_accuracy(evidence, config.target)
    if config.goal == "accuracy" and target is not None and target.is_next_to_nothing(config.margin):
        reason, selected = "unsolved", replace(selected, sure=False)
    timed = tuple(dict.fromkeys((config.target, exact, *finalists, *ranked.equal)))
    more = _more_wanted(evidence, config.target, exact, trials, undecided, end) if reason == "minutes" else None
    return Outcome(
        selected,
        reason,
        tuple(results.values()),
        more,
        tuple(setting for setting in close if status[setting].rank > best_rank),
        ranked.equal,
        ranked.within,
        timed,
        evidence.taken(timed, end),
        all(evidence.again.get(setting) for setting in timed),
        evidence.largest_cluster > 1,
        target,
        _lines_wanted(trials, undecided, end, config.limit) if reason in ("minutes", "prompts") and not more else None,
    )


def _ranked(
    config: CalibrationConfig, evidence: Measurements, sure: Sequence[DecodingConfig], exact: DecodingConfig, end: int
) -> TimeRanking[DecodingConfig]:
    """Return the ranking by time of the settings that would do: the sure ones, or else the exact ones.

    If acceptance is the goal, time only breaks ties, so the most accurate one is alone.
    """
    if sure and config.goal == "acceptance":
        most = max(sure, key=lambda setting: rank(config, evidence, setting, exact, end))
        return ranking(evidence, [most], end)
    if sure:
        return ranking(evidence, sure, end)
    others = [one for one in evidence.started if one.acceptance.is_exact and one not in (config.target, exact)]
    if evidence.again.get(exact):  # those that were not timed with it are not ranked beside it
        others = [one for one in others if evidence.again.get(one)]
    found = ranking(evidence, [exact, *(one for one in others if one not in evidence.failed)], end)
    return found if found.first == exact else found._replace(first=exact, equal=(), within=0.0)


def _is_worth_trying(config: CalibrationConfig, rank: float, best_rank: float) -> bool:
    """Return whether a setting is so much better than the best sure one that it is worth more prompts."""
    return config.goal == "acceptance" or rank > (1 + CLOSE) * best_rank


def _more_wanted(
    evidence: Measurements, target: DecodingConfig, exact: DecodingConfig,
    trials: Mapping[DecodingConfig, SettingTrial], undecided: Sequence[DecodingConfig], end: int,
) -> MoreWanted | None:  # fmt: skip
    """Return the effort that makes the first undecided finalist sure if prompts continue like those so far.

    ``None`` if the remaining prompts are too few.
    """
    lacking = [prompts for setting in undecided if (prompts := trials[setting].lacks(end)) is not None]
    if not lacking:
        return None
    prompts = TRIAL_ROUND * math.ceil(min(lacking) / TRIAL_ROUND)
    seconds = sum(evidence.seconds_each(setting) for setting in dict.fromkeys((target, exact, *undecided)))
    return MoreWanted(prompts, prompts * seconds / 60)


def _lines_wanted(
    trials: Mapping[DecodingConfig, SettingTrial], undecided: Sequence[DecodingConfig], end: int, limit: int
) -> int | None:
    """Return how many prompts more than there are make a finalist sure; ``None`` if no likely number does."""
    lacking = [prompts for setting in undecided if (prompts := trials[setting].lacks(end, _MOST_LINES)) is not None]
    return max(1, min(lacking) - (limit - end)) if lacking else None


def _end_reason(
    config: CalibrationConfig,
    evidence: Measurements,
    best: DecodingConfig | None,
    undecided: Sequence[DecodingConfig],
    end: int,
) -> str | None:
    """Return the reason that ends the trial, or ``None``."""
    if not undecided:
        return "sure" if best is not None else "hopeless"
    if end >= config.limit:
        return "prompts"
    return "minutes" if evidence.seconds(end) >= 60 * config.all_minutes else None
