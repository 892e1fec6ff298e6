"""Does a calibration: turn by turn, each one recorded as runs of its experiment."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from fsd_core.benchmarks.bench import Bench, PairLoader
from fsd_core.benchmarks.calibration.plan import Outcome, Step
from fsd_core.benchmarks.calibration.standing import standing
from fsd_core.benchmarks.execution import Writing, execute_runs
from fsd_core.config.calibration import CalibrationConfig
from fsd_core.tracking.database.repository import Repository
from fsd_core.tracking.records import RunView


def calibrate(
    repository: Repository,
    experiment_id: str,
    config: CalibrationConfig,
    bench: Bench | PairLoader,
    on_prompt: Callable[[RunView], None] = lambda run: None,
    writing: Writing = lambda run_id, positions: nullcontext(),
    on_start: Callable[[RunView], None] = lambda run: None,
    on_turn: Callable[[Step], None] = lambda step: None,
) -> Outcome:
    """Does what is left of a calibration. Called again after an interruption of any kind, it goes on.

    ``on_turn`` is called when new runs begin; the others are those of :func:`execute_runs`, which also says what is
    raised. Raises ``FsdError`` if the target or exact SD cannot be measured.
    """
    while True:
        runs = repository.experiment(experiment_id).runs
        if left := [run.id for run in runs if not run.ended]:
            execute_runs(repository, left, bench, on_prompt, writing, on_start)
            continue
        step = standing(repository, config, runs)
        if isinstance(step, Outcome):
            return step
        on_turn(step)
        repository.extend_experiment(experiment_id, config.turn(step.decodings, step.start, step.end))
