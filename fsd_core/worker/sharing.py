"""Several workers on one database: their names, their heartbeats, and the runs that they share."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import FsdError, Malformed, Misconfigured, WorkerRunning
from fsd_core.rules import Served
from fsd_core.storage.opening import parse, sqlite_path
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import JobRow

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView
    from fsd_core.storage.tables import WorkerRow


logger = logging.getLogger(__name__)

_INTERVAL = 2.0  # seconds
IDLE = "idle"


class Heartbeat:
    """A thread, since a prompt may take longer than a lease. Used as a context manager; each beat is its own
    session."""

    def __init__(
        self, repository: Repository, device: str, lease: float, memory: int | None = None, name: str = ""
    ) -> None:
        """``lease``: seconds until a claim without a heartbeat expires. ``memory``: bytes that the device has.
        ``name``: of a worker beside others."""
        self.activity = IDLE
        """current work of the worker, as displayed on the pages"""
        self._repository, self._device, self._lease, self._memory = repository, device, lease, memory
        self._name = name
        self._tokens: dict[str, str] = {}  # job id: claim token
        self._lost: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @contextmanager
    def holding(self, job: JobRow) -> Iterator[None]:
        """Renew the lease of the job during the block."""
        assert job.claim_token is not None
        previous = self.activity
        self._tokens[job.id] = job.claim_token
        try:
            yield
        finally:
            del self._tokens[job.id]
            self._lost.discard(job.id)
            self.activity = previous

    def lost(self, job: JobRow) -> bool:
        """Whether another worker has taken the job, as may happen after an outage of the database."""
        return job.id in self._lost

    def _beat(self) -> None:
        silent = False
        while True:
            try:
                who = os.getpid(), socket.gethostname(), self._device
                self._repository.report_worker(*who, self.activity, self._memory, self._name)
                for job_id, token in list(self._tokens.items()):
                    if not self._repository.heartbeat(job_id, token, self._lease):
                        self._lost.add(job_id)
                silent = False
            except FsdError as error:
                if not silent:
                    logger.warning("No heartbeat: %s", error)
                silent = True
            if self._stop.wait(_INTERVAL):
                return


HOME_WORKER = "home"
"""recorded as the worker of a shared run that a worker without a name has taken"""
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")


def check_worker_name(name: str, database_url: str) -> None:
    """Raise ``InvalidSetting`` if no worker can have this name, or if the database is one that a single worker uses."""
    if not _NAME.fullmatch(name) or name == HOME_WORKER:
        raise Malformed(
            f"A worker cannot be named {name[:60]!r}: expected 1 to 40 lower-case letters, digits, dots and hyphens, "
            f"such as gpu-1, and not '{HOME_WORKER}'."
        )
    if sqlite_path(parse(database_url)) is not None:
        raise Misconfigured(
            "Several workers need a database that several machines reach, and this one is a SQLite file: set "
            "FSD_DATABASE_URL to a PostgreSQL database, or leave out --on for the one worker of a home."
        )


def check_unique(name: str, workers: Sequence[WorkerRow]) -> None:
    """Raise ``WorkerRunning`` while another process has this name. The caller holds the name's lock of its home."""
    other = next((worker for worker in workers if worker.name == name and worker.alive), None)
    if other is None:
        return
    if other.host == socket.gethostname() and (other.pid == os.getpid() or not psutil.pid_exists(other.pid)):
        return
    raise WorkerRunning(
        f"A worker named '{name}' (process {other.pid} on {other.host}) is running: choose another name. If it was "
        "killed, its name is free in ten seconds."
    )


def can_be_shared(experiment: ExperimentView) -> bool:
    """Whether the runs of an experiment may be measured by several workers at once.

    A calibration decides its next runs by the last, and a running engine would be under the load of several runs.
    """
    if isinstance(experiment.config, CalibrationConfig):
        return False
    return not any(isinstance(run.decoding.acceptance, Served) for run in experiment.runs)
