"""What replay proposes to a calibration: of each rule and knob the draft length that is worth measuring.

A few of the prompts that choose are written strictly and recorded, once. Replay then tells of every setting at every
draft length how fast it would be (docs/replay.md). Measured are: each lossy setting at the length that is predicted to
be its fastest, unless that is no faster than exact decoding at its own; and exact ones at their three fastest lengths,
since everything is held against them. A setting that keeps other tokens than exact decoding changes the text, so that
replay errs, mostly by telling too little of it: such a one is left out only where it is predicted to be slower by more
than ``ERRS``. Where acceptance is the goal, it is the fastest length that accepts enough. What replay cannot tell of,
such as trees and copied drafts, is measured at each of ``DRAFT_LENGTHS``. The prompts that try the finalists have no
part in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fsd_core.config import DecodingConfig
from fsd_core.config.calibration_config import DRAFT_LENGTHS, FEWEST_CHOOSING, CalibrationConfig
from fsd_core.errors import InvalidSetting
from fsd_core.models.loading import LoadedPair
from fsd_core.replays.prediction import Prediction, Replay
from fsd_core.replays.strict_run import record
from fsd_core.rules import Rule
from fsd_core.statistics.intervals import keyed
from fsd_core.tasks import Task

EXACT_LENGTHS = 3
ERRS = 0.2
"""share of the speed by which replay told too little of a setting that changes the text (docs/replay.md)"""
TIMED_ROUNDS = 15
"""of each draft length: a calibration waits for them"""


class ProposedSetting(NamedTuple):
    """A setting to measure, and the metrics that replay predicts of it, with their intervals, if it can tell."""

    decoding: DecodingConfig
    predicted: dict[str, Any] | None


def propose(config: CalibrationConfig, task: Task, pair: LoadedPair) -> tuple[ProposedSetting, ...]:
    """The settings that a calibration with ``config.lengths`` begins with.

    Raises as :func:`fsd_core.replays.strict_run.record`.
    """
    (turn,) = config.turn([config.target], 0, FEWEST_CHOOSING)
    trace = record(
        pair, task, task.examples_of(turn), seed=turn.seed, sampling=config.target.sampling,
        draft_length=max(config.lengths), max_new_tokens=config.target.max_new_tokens, timed_rounds=TIMED_ROUNDS,
    )  # fmt: skip
    replay = Replay(trace)
    told = [one for one in config.decodings if _tells(replay, _of_length(one, 1))]
    predictions = replay.predict([_of_length(one, length) for one in told for length in config.lengths])
    chosen = [ProposedSetting(one.config, predicted_metrics(one)) for one in _worth_measuring(config, predictions)]
    others = [one for one in config.decodings if one not in told]
    return (*chosen, *(ProposedSetting(_of_length(one, length), None) for one in others for length in DRAFT_LENGTHS))


def predicted_metrics(prediction: Prediction) -> dict[str, Any]:
    """What is predicted, by the names that metrics have once they are measured."""
    speed = prediction.tokens_per_second
    return {
        **keyed("acceptance_rate", prediction.acceptance_rate),
        **keyed("mean_acceptance_length", prediction.tokens_per_pass),
        **keyed("target_passes", prediction.passes),
        **(keyed("tokens_per_second", speed) if speed else {}),
    }


def _tells(replay: Replay, one: DecodingConfig) -> bool:
    try:
        replay.check(one)
    except InvalidSetting:
        return False
    return True


def _of_length(one: DecodingConfig, length: int) -> DecodingConfig:
    assert one.topology is not None
    return one.model_copy(update={"topology": one.topology.model_copy(update={"length": length})})


def _worth_measuring(config: CalibrationConfig, predictions: Sequence[Prediction]) -> Iterable[Prediction]:
    """See the head of this file; in the order in which the settings were given."""
    rules: dict[Rule, list[Prediction]] = {}
    for one in predictions:
        rules.setdefault(one.config.acceptance, []).append(one)
    exact = max((_speed(one) for rule, own in rules.items() if rule.lossless for one in own), default=0.0)
    strict = {_draft(one): one for rule, own in rules.items() if rule.kind == "speculative" for one in own}
    kept: set[int] = set()
    for rule, own in rules.items():
        best = _best(config, own)
        if rule.lossless:
            kept |= {id(one) for one in sorted(own, key=_speed, reverse=True)[:EXACT_LENGTHS]}
        slowest = exact if _is_strict(best, strict) else (1 - ERRS) * exact
        if config.goal == "acceptance" or (not rule.lossless and _speed(best) > slowest):
            kept.add(id(best))
    return (one for one in predictions if id(one) in kept)


def _draft(one: Prediction) -> tuple[Any, Any]:
    return one.config.drafter, one.config.topology


def _is_strict(one: Prediction, strict: Mapping[tuple[Any, Any], Prediction]) -> bool:
    """Whether it kept just what the strict test of the same draft keeps, so that the prediction is exact."""
    same = strict.get(_draft(one))
    return same is not None and np.array_equal(one.counts, same.counts)


def _best(config: CalibrationConfig, own: Sequence[Prediction]) -> Prediction:
    """The fastest; where acceptance is the goal, of those that accept enough, or else the one that accepts the most."""
    if config.goal != "acceptance":
        return max(own, key=_speed)
    enough = [one for one in own if one.acceptance_rate.value >= config.acceptance]
    return max(enough, key=_speed) if enough else max(own, key=lambda one: one.acceptance_rate.value)


def _speed(one: Prediction) -> float:
    assert one.speed_up is not None
    return one.speed_up.value
