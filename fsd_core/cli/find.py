"""Runs and experiments found by an id or its beginning: what ``resume`` may go on with, and ``rescore`` judge;
and by their content: what ``run`` and ``sweep`` go on with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fsd_core.config import RunConfig, SweepConfig, content_hash
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import InvalidSetting, UnknownName
from fsd_core.worker import lock

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import ExperimentView, RunView


_LOOKED_AT = 50
"""experiments, the newest ones"""


@dataclass(frozen=True)
class StoredWork:
    """A run, or an experiment with all its runs."""

    id: str
    title: str
    runs: tuple[RunView, ...]
    is_experiment: bool
    left_to_worker: bool
    """whether a job has it"""

    @property
    def lock(self) -> tuple[str, str]:
        """What one process at a time may work on. A run of an experiment is covered by it."""
        experiment_id = self.runs[0].experiment_id
        return ("run", self.id) if experiment_id is None else ("experiment", experiment_id)


def find_work(repository: Repository, beginning: str) -> StoredWork:
    """The run or experiment whose id begins so. Raises ``UnknownName`` if there is none, and ``InvalidSetting`` if
    there are several."""
    runs = repository.runs(id_begins=beginning, limit=None)
    mine = [run for run in runs if run.id.startswith(beginning)]
    experiments = {run.experiment_id for run in runs if (run.experiment_id or "").startswith(beginning)} - {None}
    if len(mine) + len(experiments) > 1:
        raise InvalidSetting(f"Several ids begin with '{beginning}': expected more characters of the one meant.")
    if mine:
        return _of_run(repository, mine[0])
    for id in filter(None, experiments):
        return _of_experiment(repository.experiment(id))
    raise UnknownName(
        f"There is no run and no experiment '{beginning}': expected an id that `runs` lists, or that the pages show."
    )


def check_left(work: StoredWork) -> None:
    """Raises ``InvalidSetting`` if nothing is left to do, or if the worker is at it."""
    what = "experiment" if work.is_experiment else "run"
    if not any(run.has_more_to_do for run in work.runs):
        raise InvalidSetting(
            f"The {what} {work.id} is finished, and none of its prompts failed: start a new one with the same settings."
        )
    if work.left_to_worker and any(not run.ended for run in work.runs):
        raise InvalidSetting(
            f"The {' '.join(work.lock)} belongs to the worker, which continues it by itself: start the application, "
            "or `python -m fsd_core worker`."
        )


def left_behind(repository: Repository, home: Path, config: RunConfig | SweepConfig) -> StoredWork | None:
    """What a killed command with this very content left unfinished on the command line; of several the newest, one that
    was begun before one that was not."""
    wanted = content_hash(config)
    pair = config.setting.pair if isinstance(config, RunConfig) else config.pair
    unended = [
        run
        for status in ("running", "queued")
        for run in repository.runs(status=status, pair=pair, task=config.task, limit=None)  # newest first
    ]
    if isinstance(config, RunConfig):
        alone = (run for run in unended if run.experiment_id is None)
        works = (_of_run(repository, run) for run in alone if content_hash(run.config) == wanted)
    else:
        ids = dict.fromkeys(run.experiment_id for run in unended if run.experiment_id is not None)
        experiments = (repository.experiment(id) for id in ids)
        works = (_of_experiment(e) for e in experiments if content_hash(e.config) == wanted)
    works = (work for work in works if not work.left_to_worker)
    return next((work for work in works if lock.holder(home / "runs" / f"{work.id}.lock") is None), None)


def calibration_left(repository: Repository, home: Path, config: CalibrationConfig) -> str | None:
    """The newest calibration with this very content that a killed command left before its verdict, or that its minutes
    ended where there are more now. It has the minutes of ``config`` then."""
    for one in repository.experiments(limit=_LOOKED_AT):
        if one.job_id is not None or not isinstance(one.config, CalibrationConfig) or not one.config.asks_as(config):
            continue
        free, more = lock.holder(home / "runs" / f"{one.id}.lock") is None, config.minutes - one.config.all_minutes
        if free and more >= 0 and _left(repository, one, one.config, more):
            if more:
                repository.grant_minutes(one.id, more, enqueue=False)
            return one.id
    return None


def _left(repository: Repository, one: ExperimentView, config: CalibrationConfig, more: float) -> bool:
    """Whether anything of a calibration is left to do, with so many more minutes."""
    from fsd_core.calibration.planning import Outcome
    from fsd_core.calibration.status import standing

    at = standing(repository, config, one.runs)
    return not isinstance(at, Outcome) or (more > 0 and at.reason == "minutes")


def _of_run(repository: Repository, run: RunView) -> StoredWork:
    job = repository.find_job(run.experiment_id or run.id)
    return StoredWork(run.id, run.label, (run,), is_experiment=False, left_to_worker=job is not None)


def _of_experiment(experiment: ExperimentView) -> StoredWork:
    job = experiment.job_id is not None
    return StoredWork(experiment.id, experiment.name, experiment.runs, is_experiment=True, left_to_worker=job)
