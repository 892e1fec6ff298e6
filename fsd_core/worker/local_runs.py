"""Runs that the command line or the library executes without the worker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsd_core.errors import DatabaseUnavailable
from fsd_core.settings import Settings
from fsd_core.worker import lock, run_actions
from fsd_core.worker.lock_metadata import LockMetadata

if TYPE_CHECKING:
    from fsd_core.evaluation.observer import Writing
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import ExperimentView, RunView


def open_repository(settings: Settings) -> Repository:
    """Open the database, which is created first if it is missing. An outdated database is refused, because other
    processes may be using it."""
    from fsd_core.storage.database import connection
    from fsd_core.storage.database.repository import Repository

    settings.make_folders()
    url = settings.resolved_database_url
    if not has_database(settings):
        connection.upgrade(url)
    return Repository(connection.open_database(url))


def has_database(settings: Settings) -> bool:
    """Whether the database exists. Always true for a server, which is not queried."""
    if settings.database_url is None:
        return settings.default_database.exists()  # told without the seconds that SQLAlchemy takes to import
    from fsd_core.storage.database import connection

    path = connection.sqlite_path(connection.parse(settings.resolved_database_url))
    return path is None or path.exists()


def with_actual_status(experiment: ExperimentView, home: Path) -> ExperimentView:
    """Return the experiment with its actual status. It is ``stopped`` if a process of this home ran it without the
    worker and was killed, while the database says ``running`` until somebody continues it."""
    path = home / "runs" / f"{experiment.id}.lock"
    abandoned = experiment.under_way and experiment.job_id is None and path.exists() and lock.holder(path) is None
    return replace(experiment, status="stopped") if abandoned else experiment


def with_actual_statuses(repository: Repository, runs: Sequence[RunView], home: Path) -> list[RunView]:
    """Return the runs with their actual status: ``stopped`` in place of ``running`` where their experiment is."""
    experiments = {run.experiment_id for run in runs if run.status == "running" and run.experiment_id}
    stopped = {id for id in experiments if with_actual_status(repository.experiment(id), home).status == "stopped"}
    return [
        replace(run, status="stopped") if run.status == "running" and run.experiment_id in stopped else run
        for run in runs
    ]


@contextmanager
def exclusive_writing(repository: Repository, home: Path, what: str, id: str) -> Iterator[Writing]:
    """Lock a run, or an experiment with all its runs, for this process. Yields a function that records the prompts
    being written, for the process that follows a kill. What the block leaves open is stopped. Raises as
    ``run_actions.exclusive_lock`` does."""
    with run_actions.exclusive_lock(home, what, id) as run_lock:
        metadata = LockMetadata(run_lock, pid=os.getpid())
        repository.worker_lost(*metadata.inherited)
        metadata.settle()
        try:
            yield metadata.writing
        except BaseException:  # such as an interrupt
            with suppress(DatabaseUnavailable):
                repository.stop_runs(id)
            raise
