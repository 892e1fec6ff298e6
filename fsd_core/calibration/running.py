"""Running a calibration, step by step, with the draft lengths that replay proposes.

Replay's proposals to a calibration: the draft lengths worth measuring, for each rule and knob.

A few of the choosing prompts are decoded strictly and recorded, once. Replay then predicts the speed of every setting
at every draft length (docs/replay.md). Each lossy setting is measured at its predicted fastest length, unless that is
no faster than exact decoding at its own. Exact settings are measured at their three fastest lengths, since everything
is compared to them.

A setting that accepts other tokens than exact decoding changes the text, so that replay errs, mostly by underestimating
it. Such a setting is left out only if it is predicted to be slower by more than ``ERRS``. If acceptance is the goal,
the fastest length that accepts enough is measured. Settings that replay cannot predict, such as trees and copied
drafts, are measured at each of ``DRAFT_LENGTHS``. The prompts that try the finalists have no part in this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fsd_core.calibration.findings import check_knob
from fsd_core.calibration.planning import CalibrationStep, Outcome
from fsd_core.calibration.summary import calibration_status
from fsd_core.config import DecodingConfig
from fsd_core.config.calibration_config import DRAFT_LENGTHS, FEWEST_CHOOSING, CalibrationConfig
from fsd_core.engines.client import EngineKnob
from fsd_core.errors import InvalidSetting
from fsd_core.evaluation.harness import LocalGenerator, PairLoader, TextGenerator
from fsd_core.evaluation.runner import UNOBSERVED, RunObserver, execute_runs
from fsd_core.models.loading import LoadedPair
from fsd_core.replays.prediction import Prediction, Replay
from fsd_core.replays.recording import record
from fsd_core.rules import Rule
from fsd_core.statistics.intervals import keyed
from fsd_core.storage.repository import Repository
from fsd_core.tasks import Task
from fsd_core.tasks.custom.custom_task import find_task

EXACT_LENGTHS = 3
ERRS = 0.2
"""relative speed by which replay underestimated settings that change the text (docs/replay.md)"""
TIMED_ROUNDS = 15
"""per draft length; few, since a calibration waits for them"""


class ProposedSetting(NamedTuple):
    """A setting to measure, and the metrics that replay predicts for it, with their intervals, if it can."""

    decoding: DecodingConfig
    predicted: dict[str, Any] | None


def propose(config: CalibrationConfig, task: Task, pair: LoadedPair) -> tuple[ProposedSetting, ...]:
    """Return the settings with which a calibration with ``config.lengths`` begins.

    Raises as :func:`fsd_core.replays.recording.record`.
    """
    (run,) = config.round_runs([config.target], 0, FEWEST_CHOOSING)
    trace = record(
        pair, task, task.examples_of(run), seed=run.seed, **config.target.shared,
        draft_length=max(config.lengths), timed_rounds=TIMED_ROUNDS,
    )  # fmt: skip
    replay = Replay(trace)
    predictable = [candidate for candidate in config.decodings if _can_predict(replay, _with_length(candidate, 1))]
    predictions = replay.predict(
        [_with_length(candidate, length) for candidate in predictable for length in config.lengths]
    )
    selected = [
        ProposedSetting(candidate.config, predicted_metrics(candidate))
        for candidate in _worth_measuring(config, predictions)
    ]
    unpredictable = [candidate for candidate in config.decodings if candidate not in predictable]
    return (
        *selected,
        *(
            ProposedSetting(_with_length(candidate, length), None)
            for candidate in unpredictable
            for length in DRAFT_LENGTHS
        ),
    )


def predicted_metrics(prediction: Prediction) -> dict[str, Any]:
    """Return the predictions under the names that metrics have once they are measured."""
    speed = prediction.tokens_per_second
    return {
        **keyed("acceptance_rate", prediction.acceptance_rate),
        **keyed("mean_acceptance_length", prediction.tokens_per_pass),
        **keyed("target_passes", prediction.passes),
        **(keyed("tokens_per_second", speed) if speed else {}),
    }


def _can_predict(replay: Replay, config: DecodingConfig) -> bool:
    try:
        replay.check(config)
    except InvalidSetting:
        return False
    return True


def _with_length(config: DecodingConfig, length: int) -> DecodingConfig:
    assert config.topology is not None
    return config.model_copy(update={"topology": config.topology.model_copy(update={"length": length})})


def _worth_measuring(config: CalibrationConfig, predictions: Sequence[Prediction]) -> Iterable[Prediction]:
    """Return the predictions worth measuring, in the given order; see the module docstring."""
    rules: dict[Rule, list[Prediction]] = {}
    for prediction in predictions:
        rules.setdefault(prediction.config.acceptance, []).append(prediction)
    exact = max(
        (_speed(prediction) for rule, group in rules.items() if rule.lossless for prediction in group), default=0.0
    )
    strict = {
        _draft(prediction): prediction
        for rule, group in rules.items()
        if rule.kind == "speculative"
        for prediction in group
    }
    selected: set[int] = set()
    for rule, group in rules.items():
        best = _best_prediction(config, group)
        if rule.lossless:
            selected |= {id(prediction) for prediction in sorted(group, key=_speed, reverse=True)[:EXACT_LENGTHS]}
        slowest = exact if _is_strict(best, strict) else (1 - ERRS) * exact
        if config.goal == "acceptance" or (not rule.lossless and _speed(best) > slowest):
            selected.add(id(best))
    return (prediction for prediction in predictions if id(prediction) in selected)


def _draft(prediction: Prediction) -> tuple[Any, Any]:
    return prediction.config.drafter, prediction.config.topology


def _is_strict(prediction: Prediction, strict: Mapping[tuple[Any, Any], Prediction]) -> bool:
    """Return whether it accepted exactly what the strict test of the same draft accepts, so that the prediction is
    exact."""
    same = strict.get(_draft(prediction))
    return same is not None and np.array_equal(prediction.counts, same.counts)


def _best_prediction(config: CalibrationConfig, predictions: Sequence[Prediction]) -> Prediction:
    """Return the fastest prediction.

    If acceptance is the goal, it is the fastest that accepts enough, or else the one that accepts the most.
    """
    if config.goal != "acceptance":
        return max(predictions, key=_speed)
    enough = [prediction for prediction in predictions if prediction.acceptance_rate.value >= config.acceptance]
    return (
        max(enough, key=_speed) if enough else max(predictions, key=lambda prediction: prediction.acceptance_rate.value)
    )


def _speed(prediction: Prediction) -> float:
    assert prediction.speed_up is not None
    return prediction.speed_up.value


def calibrate(
    repository: Repository,
    experiment_id: str,
    config: CalibrationConfig,
    generator: TextGenerator | PairLoader,
    observer: RunObserver = UNOBSERVED,
    knob: EngineKnob | None = None,
) -> Outcome:
    """Run what remains of a calibration. Called again after an interruption of any kind, it continues.

    ``knob``: see :func:`execute_runs`. Raises as that, and ``FsdError`` if the target or exact SD cannot be measured,
    or if an engine's knob does nothing.
    """
    generator = generator if isinstance(generator, TextGenerator) else LocalGenerator(generator)
    while True:
        runs = repository.experiment(experiment_id).runs
        if remaining := [run.id for run in runs if not run.ended]:
            in_turns = [remaining] if knob is None or not knob.by_restart else [[id] for id in remaining]
            for ids in in_turns:
                execute_runs(repository, ids, generator, observer, knob=knob)
            continue
        check_knob(repository, config, runs)
        step = calibration_status(repository, config, runs)
        if isinstance(step, Outcome):
            return step
        predicted: dict[str, dict[str, Any]] = {}
        if step.lengths_open:
            step, predicted = _proposed(config, repository, generator)
        observer.on_calibration_round(len(step.decodings), step.start, step.end)
        new_runs = config.round_runs(step.decodings, step.start, step.end)
        repository.extend_experiment(experiment_id, new_runs, predicted)


def _proposed(
    config: CalibrationConfig, repository: Repository, generator: TextGenerator
) -> tuple[CalibrationStep, dict[str, dict]]:
    """Return the first step, made of replay's proposals, and the predictions by setting."""
    query = partial(propose, config, find_task(config.task, repository))
    proposals = generator.ask(config.pair, config.device, config.dtype, query)
    predicted = {
        config.setting_of(proposal.decoding).id: proposal.predicted for proposal in proposals if proposal.predicted
    }
    return CalibrationStep(
        (config.target, *(proposal.decoding for proposal in proposals)), 0, FEWEST_CHOOSING
    ), predicted
