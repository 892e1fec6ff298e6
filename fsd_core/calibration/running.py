"""Running a calibration, step by step. Each step is recorded as runs of its experiment."""

from __future__ import annotations

from functools import partial
from typing import Any

from fsd_core.calibration.knob_effect import check_knob
from fsd_core.calibration.planning import CalibrationStep, Outcome
from fsd_core.calibration.proposing import propose
from fsd_core.calibration.status import calibration_status
from fsd_core.config.calibration_config import FEWEST_CHOOSING, CalibrationConfig
from fsd_core.engines.engine_knob import EngineKnob
from fsd_core.evaluation.generator import LocalGenerator, PairLoader, TextGenerator
from fsd_core.evaluation.observer import UNOBSERVED, RunObserver
from fsd_core.evaluation.runner import execute_runs
from fsd_core.storage.database.repository import Repository
from fsd_core.tasks.custom.lookup import find_task


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
