"""Status of a calibration, read from its recorded runs. It needs no torch, so pages may use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from fsd_core.calibration.measured import Measurements
from fsd_core.calibration.planning import CalibrationStep, Outcome, next_step
from fsd_core.calibration.summary import verdict
from fsd_core.config import DecodingConfig
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import FsdError, NotApplicable, WrongState
from fsd_core.storage.records import Trial
from fsd_core.tasks.custom.lookup import find_task

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import ExperimentView, PromptCounts, RunView


def calibration_status(
    repository: Repository, config: CalibrationConfig, runs: Sequence[RunView]
) -> CalibrationStep | Outcome:
    """Return the next step or the outcome that follows from the runs of a calibration so far.

    Raises as :func:`next_step`, and ``UnknownName`` for a task that no longer exists.
    """
    return next_step(config, measurements(repository, config, runs))


def measurements(repository: Repository, config: CalibrationConfig, runs: Sequence[RunView]) -> Measurements:
    """Return the measurements of a calibration's runs so far. Raises ``UnknownName`` as above."""
    done = repository.prompts(run.id for run in runs)
    counts: dict[DecodingConfig, dict[int, PromptCounts]] = {}
    again: dict[DecodingConfig, dict[int, PromptCounts]] = {}
    failed: dict[DecodingConfig, str] = {}
    for run in runs:
        if run.config.again:
            again.setdefault(run.decoding, {}).update(done[run.id])
            continue
        counts.setdefault(run.decoding, {}).update(done[run.id])
        if run.status == "failed":
            failed[run.decoding] = run.error or f"{run.label} failed."
        elif run.status == "finished":
            failed.pop(run.decoding, None)
    (run,) = config.round_runs([config.target], 0, config.limit)
    task = find_task(config.task, repository)
    order, examples = task.positions(run), task.all_examples()
    groups = {position: examples[position].group for position in order if examples[position].group}
    return Measurements(order, counts, failed, again, groups)


def ended(repository: Repository, id: str, only: str) -> tuple[CalibrationConfig, Sequence[RunView], Outcome]:
    """Return a calibration that has ended. ``only``: what is done with calibrations alone, as the end of a sentence.

    Raises as :func:`calibration_status`, and ``InvalidSetting`` for another kind of experiment and before the end.
    """
    experiment = repository.experiment(id)
    if not isinstance(experiment.config, CalibrationConfig):
        raise NotApplicable(f"The experiment {id} is no calibration: only {only}.")
    status = calibration_status(repository, experiment.config, experiment.runs)
    if not isinstance(status, Outcome):
        raise WrongState(f"The calibration {id} has not ended: resume it, or wait for its end.")
    return experiment.config, experiment.runs, status


def ended_by_time(repository: Repository, id: str) -> Outcome:
    """Return the outcome of a calibration that its minutes ended. Raises as :func:`ended`, and for another end."""
    config, _, outcome = ended(repository, id, "these are given time")
    if outcome.reason != "minutes":
        raise WrongState(f"The calibration {id} did not end for want of time: {verdict(config, outcome)}")
    return outcome


def latest_status(repository: Repository, experiment: ExperimentView) -> CalibrationStep | Outcome:
    """Return the status of a calibration, computed again once a run ends or is scored again, or time is given.

    It is too slow for every prompt and every poll. Raises as :func:`calibration_status`.
    """
    status, _ = _latest(repository, experiment.id, _stage(experiment))
    if isinstance(status, FsdError):
        raise status.with_traceback(None)
    return status


def trials(repository: Repository, experiment: ExperimentView) -> Mapping[DecodingConfig, Trial]:
    """Return what bets on each setting's fresh prompts in a calibration rest on. Nothing is where its task is gone."""
    config = experiment.config
    assert isinstance(config, CalibrationConfig)
    try:
        status, evidence = _latest(repository, experiment.id, _stage(experiment))
    except FsdError:
        return {}
    start, order, target = config.choosing, evidence.order, evidence.of(config.target)
    end = max((place for place, position in enumerate(order, 1) if position in target), default=0)
    fresh = tuple(filter(evidence.is_whole(start, end), order[start:end]))
    finalists = max(1, len(status.finalists)) if isinstance(status, Outcome) else config.finalists
    bets = fresh, evidence.groups, evidence.largest_cluster, config.accuracy_bound, finalists
    return {
        one: Trial({i: done[i] for i in order[:start] if i in done}, *bets) for one, done in evidence.counts.items()
    }


def _stage(experiment: ExperimentView) -> tuple[object, ...]:
    """Return what differs once a calibration has got further."""
    assert isinstance(experiment.config, CalibrationConfig)
    runs = ((run.status, (run.metrics or {}).get("accuracy")) for run in experiment.runs)
    return (experiment.config.all_minutes, *runs)


@lru_cache(32)
def _latest(repository: Repository, id: str, _: object) -> tuple[CalibrationStep | Outcome | FsdError, Measurements]:
    """Return the status, or why it cannot go on, and what its runs measured."""
    experiment = repository.experiment(id)
    assert isinstance(experiment.config, CalibrationConfig)
    evidence = measurements(repository, experiment.config, experiment.runs)
    try:
        return next_step(experiment.config, evidence), evidence
    except FsdError as error:
        return error, evidence
