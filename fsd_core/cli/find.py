"""Find runs and experiments by an id prefix (for ``resume`` and ``rescore``) or by their content (for ``run`` and
``sweep``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fsd_core.config import RunConfig, SweepConfig, content_hash
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import InvalidSetting, UnknownName, WrongState
from fsd_core.worker import lock
from fsd_core.worker.pair_names import identified

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import ExperimentView, RunView


_MAX_EXPERIMENTS = 50
"""how many of the newest experiments are searched"""


@dataclass(frozen=True)
class StoredWork:
    """A run, or an experiment with all its runs."""

    id: str
    title: str
    runs: tuple[RunView, ...]
    is_experiment: bool
    owned_by_worker: bool
    """whether a job of the worker owns it"""

    @property
    def lock(self) -> tuple[str, str]:
        """Kind and id of the lock to hold. The lock of an experiment covers its runs."""
        experiment_id = self.runs[0].experiment_id
        return ("run", self.id) if experiment_id is None else ("experiment", experiment_id)


def find_work(repository: Repository, id_prefix: str) -> StoredWork:
    """Return the run or experiment whose id starts with ``id_prefix``. Raises ``UnknownName`` if none does, and
    ``InvalidSetting`` if several do."""
    runs = repository.runs(id_prefix=id_prefix, limit=None)
    matches = [run for run in runs if run.id.startswith(id_prefix)]
    experiments = {run.experiment_id for run in runs if (run.experiment_id or "").startswith(id_prefix)} - {None}
    if len(matches) + len(experiments) > 1:
        raise InvalidSetting(f"Several ids begin with '{id_prefix}': expected more characters of the one meant.")
    if matches:
        return _stored_run(repository, matches[0])
    for id in filter(None, experiments):
        return _stored_experiment(repository.experiment(id))
    raise UnknownName(
        f"There is no run and no experiment '{id_prefix}': expected an id that `runs` lists, or that the pages show."
    )


def check_resumable(work: StoredWork) -> None:
    """Raise ``InvalidSetting`` if nothing remains to be done, or if the worker owns the work."""
    what = "experiment" if work.is_experiment else "run"
    if not any(run.has_more_to_do for run in work.runs):
        raise WrongState(
            f"The {what} {work.id} is finished, and none of its prompts failed: start a new one with the same settings."
        )
    if work.owned_by_worker and any(not run.ended for run in work.runs):
        raise WrongState(
            f"The {' '.join(work.lock)} belongs to the worker, which continues it by itself: start the application, "
            "or `python -m fsd_core worker`."
        )


def find_unfinished(repository: Repository, home: Path, config: RunConfig | SweepConfig) -> StoredWork | None:
    """Return the newest unfinished work of the command line with the content of ``config`` and no live process. Work
    that was already begun comes before work still queued."""
    hashes = {content_hash(config), content_hash(identified(repository, config, ""))}
    unfinished = [
        run
        for status in ("running", "stopped", "queued")
        for run in repository.runs(status=status, task=config.task, limit=None)  # newest first
    ]
    if isinstance(config, RunConfig):
        single_runs = (run for run in unfinished if run.experiment_id is None)
        works = (_stored_run(repository, run) for run in single_runs if content_hash(run.config) in hashes)
    else:
        ids = dict.fromkeys(run.experiment_id for run in unfinished if run.experiment_id is not None)
        experiments = (repository.experiment(id) for id in ids)
        works = (_stored_experiment(e) for e in experiments if content_hash(e.config) in hashes)
    works = (work for work in works if not work.owned_by_worker)
    return next((work for work in works if lock.holder(home / "runs" / f"{work.id}.lock") is None), None)


def find_unfinished_calibration(repository: Repository, home: Path, config: CalibrationConfig) -> str | None:
    """Return the newest calibration with the content of ``config`` that a killed command left unfinished, or that ran
    out of minutes when ``config`` grants more. Its budget is then raised to the minutes of ``config``."""
    for view in repository.experiments(limit=_MAX_EXPERIMENTS):
        if view.job_id is not None or not isinstance(view.config, CalibrationConfig) or not view.config.asks_as(config):
            continue
        free, more = lock.holder(home / "runs" / f"{view.id}.lock") is None, config.minutes - view.config.all_minutes
        if free and more >= 0 and _unfinished(repository, view, view.config, more):
            if more:
                repository.grant_minutes(view.id, more, enqueue=False)
            return view.id
    return None


def _unfinished(repository: Repository, view: ExperimentView, config: CalibrationConfig, more: float) -> bool:
    """Whether a calibration has anything left to do with ``more`` extra minutes."""
    from fsd_core.calibration.planning import Outcome
    from fsd_core.calibration.status import calibration_status

    status = calibration_status(repository, config, view.runs)
    return not isinstance(status, Outcome) or (more > 0 and status.reason == "minutes")


def _stored_run(repository: Repository, run: RunView) -> StoredWork:
    job = repository.find_job(run.experiment_id or run.id)
    return StoredWork(run.id, run.label, (run,), is_experiment=False, owned_by_worker=job is not None)


def _stored_experiment(experiment: ExperimentView) -> StoredWork:
    has_job = experiment.job_id is not None
    return StoredWork(experiment.id, experiment.name, experiment.runs, is_experiment=True, owned_by_worker=has_job)
