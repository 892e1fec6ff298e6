"""Resuming and deleting runs and experiments, never while a process is working on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fsd_core.errors import FsdError
from fsd_core.roles import LOCAL, Person
from fsd_core.worker import gpu_billing, lock
from fsd_core.worker.pair_names import identified

if TYPE_CHECKING:
    from fsd_core.config import SweepConfig
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import Deletion


@contextmanager
def exclusive_lock(home: Path, what: str, id: str) -> Iterator[lock.Lock]:
    """Hold the lock of a single run or of an experiment, as the only process of this home.

    Raises ``FsdError``, which names the other process, if the lock is taken.
    """
    path = home / "runs" / f"{id}.lock"
    path.parent.mkdir(exist_ok=True)
    run_lock = lock.acquire(path)
    if run_lock is None:
        pid = (lock.holder(path) or {}).get("pid", "unknown")
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
            file_lock = lock.acquire(home / name)
            if file_lock is None:
                pid = (lock.holder(home / name) or {}).get("pid", "unknown")
                raise FsdError(f"{what} (process {pid}) is using {home}: stop it first.")
            locks.callback(file_lock.close)
        yield


def begin(repository: Repository, sweep: SweepConfig, key: str = "") -> str:
    """Queue an experiment for the worker and return its id, which is ``key`` if that is given. Raises ``Taken``."""
    id = repository.create_experiment(identified(repository, sweep), id=key or None)
    gpu_billing.remember_requester(id)
    return id


def resume(repository: Repository, home: Path, kind: str, id: str) -> str:
    """Queue the remaining work of a run or an experiment (``kind``) for the worker and return its name.

    Raises as ``reopen_runs`` does, and ``FsdError`` while another process works on it.
    """
    name, runs, owner = _resolve(repository, kind, id)
    with exclusive_lock(home, *owner):
        repository.reopen_runs(runs)
    gpu_billing.remember_requester(owner[1])
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
