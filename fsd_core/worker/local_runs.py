"""Runs that a process does itself, without the worker: those of the command line and of the library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsd_core.settings import Settings
from fsd_core.worker import lock, run_actions
from fsd_core.worker.lock_metadata import LockMetadata

if TYPE_CHECKING:
    from fsd_core.evaluation.observer import Writing
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import ExperimentView


def open_repository(settings: Settings) -> Repository:
    """The database, made first where there is none yet. An outdated one is refused, for others may be using it."""
    from fsd_core.storage.database import connection
    from fsd_core.storage.database.repository import Repository

    settings.make_folders()
    url = settings.resolved_database_url
    if not has_database(settings):
        connection.upgrade(url)
    return Repository(connection.open_database(url))


def has_database(settings: Settings) -> bool:
    """Whether there is a database, or one on a server may be."""
    from fsd_core.storage.database import connection

    path = connection.sqlite_path(connection.parse(settings.resolved_database_url))
    return path is None or path.exists()


def as_it_stands(experiment: ExperimentView, home: Path) -> ExperimentView:
    """The experiment, ``stopped`` where a process of this home that did it by itself is gone before its end: the
    database says ``running`` until somebody goes on with it."""
    path = home / "runs" / f"{experiment.id}.lock"
    left = experiment.under_way and experiment.job_id is None and path.exists() and lock.holder(path) is None
    return replace(experiment, status="stopped") if left else experiment


@contextmanager
def alone(repository: Repository, home: Path, what: str, id: str) -> Iterator[Writing]:
    """Works on a run, or on all runs of an experiment, as the only process of this home; yields what tells of the
    prompts that are being written, for the process that comes after a kill. Raises as ``handling.alone`` does."""
    with run_actions.alone(home, what, id) as held:
        words = LockMetadata(held, pid=os.getpid())
        repository.worker_lost(*words.inherited)
        words.settle()
        yield words.writing
