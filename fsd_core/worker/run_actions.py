"""Runs resumed, deleted, given more time, or executed without the worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fsd_core import system
from fsd_core.calibration.summary import ended_by_time, runs_again, whole_minutes
from fsd_core.errors import DatabaseUnavailable, FsdError, NotGiven
from fsd_core.roles import LOCAL, Person
from fsd_core.settings import Settings
from fsd_core.storage.records import UNENDED
from fsd_core.system import LockMetadata
from fsd_core.worker import lent_gpu
from fsd_core.worker.pair_names import identified

if TYPE_CHECKING:
    from fsd_core.config import SweepConfig
    from fsd_core.evaluation.runner import Writing
    from fsd_core.storage.records import Deletion
    from fsd_core.storage.repository import Repository


@contextmanager
def exclusive_lock(home: Path, what: str, id: str) -> Iterator[system.Lock]:
    """Hold the lock of a single run or of an experiment, as the only process of this home.

    Raises ``FsdError``, which names the other process, if the lock is taken.
    """
    path = home / "runs" / f"{id}.lock"
    path.parent.mkdir(exist_ok=True)
    run_lock = system.acquire(path)
    if run_lock is None:
        pid = (system.holder(path) or {}).get("pid", "unknown")
        raise FsdError(f"Another process ({pid}) is working on the {what} {id}: wait until it ends, or stop it first.")
    try:
        yield run_lock
        path.unlink(missing_ok=True)  # a process that waited for this file finds nothing to do
    finally:
        run_lock.close()


@contextmanager
def exclusive_home(home: Path) -> Iterator[None]:
    """Hold the locks of the application and of the worker. Raises ``FsdError`` while either of them runs."""
    with ExitStack() as locks:
        for name, what in (("app.lock", "The application"), ("worker.lock", "A worker")):
            file_lock = system.acquire(home / name)
            if file_lock is None:
                pid = (system.holder(home / name) or {}).get("pid", "unknown")
                raise FsdError(f"{what} (process {pid}) is using {home}: stop it first.")
            locks.callback(file_lock.close)
        yield


def begin(repository: Repository, sweep: SweepConfig, key: str = "") -> str:
    """Queue an experiment for the worker and return its id, which is ``key`` if that is given. Raises ``Taken``."""
    id = repository.create_experiment(identified(repository, sweep), id=key or None)
    lent_gpu.remember_requester(id)
    return id


def cancel(repository: Repository, kind: str, id: str) -> str:
    """Stop a run or an experiment (``kind``) after its current prompt. Return that as a sentence.

    Raises ``UnknownName`` for one that has no job.
    """
    name = repository.experiment(id).name if kind == "experiment" else repository.run(id).label
    if (status := repository.job(id).status) not in UNENDED:
        return f"{name} has ended already ({status}), so there is nothing to cancel."
    repository.request_cancel(id)
    return f"{name} stops after its current prompt."


def resume(repository: Repository, home: Path, kind: str, id: str) -> str:
    """Queue the remaining work of a run or an experiment (``kind``) for the worker and return its name.

    Raises as ``reopen_runs`` does, and ``FsdError`` while another process works on it.
    """
    name, runs, owner = _resolve(repository, kind, id)
    with exclusive_lock(home, *owner):
        repository.reopen_runs(runs)
    lent_gpu.remember_requester(owner[1])
    return name


def delete(repository: Repository, home: Path, kind: str, id: str, who: Person = LOCAL) -> Deletion:
    """Delete a run or an experiment (``kind``) for good. The log of changes records the person.

    Raises as the repository does, and ``FsdError`` while another process works on it.
    """
    _, _, owner = _resolve(repository, kind, id)
    with exclusive_lock(home, *owner):
        return repository.delete_experiment(id, who) if kind == "experiment" else repository.delete_run(id, who)


def _resolve(repository: Repository, kind: str, id: str) -> tuple[str, list[str], tuple[str, str]]:
    """Return the name, the run ids and the lock. A run of an experiment is covered by the experiment's lock. Raises
    ``UnknownName``."""
    if kind == "experiment":
        experiment = repository.experiment(id)
        return experiment.name, [run.id for run in experiment.runs], ("experiment", id)
    run = repository.run(id)
    return run.label, [id], ("run", id) if run.experiment_id is None else ("experiment", run.experiment_id)


def open_repository(settings: Settings) -> Repository:
    """Open the database, which is created first if it is missing. An outdated database is refused, because other
    processes may be using it."""
    from fsd_core.storage import opening
    from fsd_core.storage.repository import Repository

    settings.make_folders()
    url = settings.resolved_database_url
    if not has_database(settings):
        opening.upgrade(url)
    repository = Repository(opening.open_database(url))
    stop_abandoned(repository, settings.home)
    return repository


def has_database(settings: Settings) -> bool:
    """Whether the database exists. Always true for a server, which is not queried."""
    if settings.database_url is None:
        return settings.default_database.exists()  # told without the seconds that SQLAlchemy takes to import
    from fsd_core.storage import opening

    path = opening.sqlite_path(opening.parse(settings.resolved_database_url))
    return path is None or path.exists()


def stop_abandoned(repository: Repository, home: Path) -> None:
    """Mark what processes of this home left undone when they were killed as stopped, and remove the locks that they
    left. What cannot be read or marked now is left to the next look."""
    left = []
    for path in (home / "runs").glob("*.lock"):
        with suppress(OSError):
            left += [path.stem] * (system.holder(path) is None)
    with suppress(FsdError, OSError):  # such as a database that is away, or a process that has begun since
        for id in repository.under_way_without_job(left) if left else ():
            with exclusive_lock(home, "work", id) as run_lock:
                repository.worker_lost(*LockMetadata(run_lock, pid=os.getpid()).inherited)
                if repository.under_way_without_job([id]):
                    repository.stop_runs(id)


@contextmanager
def exclusive_writing(repository: Repository, home: Path, what: str, id: str) -> Iterator[Writing]:
    """Lock a run, or an experiment with all its runs, for this process. Yields a function that records the prompts
    being written, for the process that follows a kill. What the block leaves open is stopped. Raises as
    ``run_actions.exclusive_lock`` does."""
    with exclusive_lock(home, what, id) as run_lock:
        metadata = LockMetadata(run_lock, pid=os.getpid())
        repository.worker_lost(*metadata.inherited)
        metadata.settle()
        try:
            yield metadata.writing
        except BaseException:  # such as an interrupt
            with suppress(DatabaseUnavailable):
                repository.stop_runs(id)
            raise


def go_on(repository: Repository, home: Path, id: str, minutes: float | None = None) -> float:
    """Grant a calibration more minutes, by default as many as its finalists are expected to need, and leave the work to
    the worker. Returns the minutes.

    Raises ``InvalidSetting`` if it did not end by time or the time needed is unknown; as ``grant_minutes`` does; and
    ``FsdError`` while another process works on it.
    """
    with exclusive_lock(home, "experiment", repository.experiment(id).id):
        more = ended_by_time(repository, id).more
        if minutes is None:
            if more is None:
                raise NotGiven(f"Nobody can say how long the calibration {id} will take: say how many minutes.")
            minutes = whole_minutes(more.minutes)
        repository.grant_minutes(id, minutes)
    lent_gpu.remember_requester(id)
    return minutes


def time_finalists(repository: Repository, home: Path, id: str) -> int:
    """Have the worker time the finalists of a calibration again, and return on how many prompts.

    Raises as ``runs_again`` and ``time_again``, and ``FsdError`` while another process works on it.
    """
    with exclusive_lock(home, "experiment", repository.experiment(id).id):
        configs = runs_again(repository, id)
        repository.time_again(id, configs)
    lent_gpu.remember_requester(id)
    return configs[0].limit
