"""Does a calibration: turn by turn, each one recorded as runs of its experiment."""

from __future__ import annotations

from functools import partial
from typing import Any

from fsd_core.calibration.planning import CalibrationStep, Outcome
from fsd_core.calibration.proposing import propose
from fsd_core.calibration.status import standing
from fsd_core.config import SettingConfig
from fsd_core.config.calibration_config import FEWEST_CHOOSING, CalibrationConfig
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
) -> Outcome:
    """Does what is left of a calibration. Called again after an interruption of any kind, it goes on.

    :func:`execute_runs` says what is raised. Raises ``FsdError`` if the target or exact SD cannot be measured.
    """
    generator = generator if isinstance(generator, TextGenerator) else LocalGenerator(generator)
    while True:
        runs = repository.experiment(experiment_id).runs
        if left := [run.id for run in runs if not run.ended]:
            execute_runs(repository, left, generator, observer)
            continue
        step = standing(repository, config, runs)
        if isinstance(step, Outcome):
            return step
        predicted: dict[str, dict[str, Any]] = {}
        if step.lengths_open:
            step, predicted = _proposed(config, repository, generator)
        observer.on_turn(len(step.decodings), step.start, step.end)
        turn = config.turn(step.decodings, step.start, step.end)
        repository.extend_experiment(experiment_id, turn, predicted)


def _proposed(
    config: CalibrationConfig, repository: Repository, generator: TextGenerator
) -> tuple[CalibrationStep, dict[str, dict]]:
    """The first turn, of what replay proposes, and what it predicts, by setting."""
    question = partial(propose, config, find_task(config.task, repository))
    found = generator.ask(config.pair, config.device, config.dtype, question)
    predicted = {
        SettingConfig(pair=config.pair, decoding=one.decoding).id: one.predicted for one in found if one.predicted
    }
    return CalibrationStep((config.target, *(one.decoding for one in found)), 0, FEWEST_CHOOSING), predicted
