"""The worker, which executes queued jobs in its own process or, if necessary, in the web process.

A home has one without a name. On PostgreSQL any number of workers with names work beside it (``sharing``).

All its work consists of rows in the ``jobs`` table, claimed under a lease that a thread renews. A killed worker leaves
its job to the next one, which continues at the first unrecorded prompt.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from types import FrameType

from fsd_core.errors import DataDamaged, WorkerRunning
from fsd_core.settings import Settings
from fsd_core.signals import handle_hangup
from fsd_core.storage.database.connection import BUSY_TIMEOUT, open_database
from fsd_core.storage.database.repository import Repository
from fsd_core.storage.records import UNENDED, JobView
from fsd_core.worker import lock
from fsd_core.worker.device import DeviceFactory, LocalDevice
from fsd_core.worker.fetching import Stopping
from fsd_core.worker.heartbeat import IDLE, Heartbeat
from fsd_core.worker.job_executor import LAST_RETRY, JobExecutor
from fsd_core.worker.lock_metadata import LockMetadata
from fsd_core.worker.mirroring import Mirroring
from fsd_core.worker.service import SUPERVISED
from fsd_core.worker.sharing import check_unique, check_worker_name
from fsd_core.worker.worker_log import log_to

logger = logging.getLogger(__name__)

SchedulerFactory = Callable[[Repository], AbstractContextManager[None]]
"""runs a scheduler of the waiting jobs of single runs during a block"""
LEASE = 10.0  # seconds
POLL = 0.2  # seconds between two polls of an empty queue


class Worker:
    """Executes jobs until it is asked to stop. The current prompt is then finished and the job returned."""

    def __init__(
        self,
        settings: Settings,
        device: DeviceFactory = LocalDevice,
        *,
        lease: float = LEASE,
        busy_timeout: float = BUSY_TIMEOUT,
        name: str = "",
        recorded_as: str = "",
        only: str | None = None,
        scheduler: SchedulerFactory | None = None,
    ) -> None:
        """``lease``: seconds until a claim without a heartbeat expires. ``busy_timeout``: as in
        :func:`open_database`. ``name``: of a worker beside others, with which its runs are recorded unless
        ``recorded_as`` is another. ``only``: the id of a job, with whose end the worker ends. ``scheduler``: what has
        the jobs of single runs of experiments executed elsewhere.

        Raises ``InvalidSetting`` for a name that no worker can have, or where there can be only one.
        """
        if name:
            check_worker_name(name, settings.resolved_database_url)
        self._name, self._only, self._scheduler = name, only, scheduler
        self._settings, self._lease, self._busy_timeout = settings, lease, busy_timeout
        self._stop = threading.Event()
        self._executor = JobExecutor(
            settings, device, self._stop, lease, name, recorded_as or name, only, scheduled=scheduler is not None
        )
        self._prune_at = 0.0
        self._preloaded = False

    def run(self) -> None:
        """Run as a process until SIGTERM, SIGINT or SIGHUP.

        Raises ``WorkerRunning`` if the home has a worker, ``DatabaseOutdated`` or ``InvalidSetting`` if it cannot work.
        """
        with self._exclusive():
            log_to(self._settings.home / "logs" / f"{self._file_name}.log")
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
            handle_hangup(self._on_signal)
            self._serve()

    def run_as_thread(self) -> None:
        """Run as a thread of another process until :meth:`stop`. Raises as :meth:`run` does."""
        with self._exclusive():
            self._serve()

    def stop(self) -> None:
        """Ask the worker to end."""
        self._stop.set()

    def hand_back(self) -> None:
        """Return the claimed jobs to the queue before their current prompts end. Call it when the process ends."""
        self._executor.hand_back()

    @property
    def _file_name(self) -> str:
        """Name of the worker's lock and log, without an ending."""
        return f"worker-{self._name}" if self._name else "worker"

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the home's worker lock, or that of the worker's name."""
        home = self._settings.home
        self._settings.make_folders()
        path = home / f"{self._file_name}.lock"
        worker_lock = lock.acquire(path)
        if worker_lock is None:
            pid = (lock.holder(path) or {}).get("pid", "unknown")
            only_one = f"has only one named '{self._name}'" if self._name else "has only one"
            raise WorkerRunning(
                f"A worker (process {pid}) already serves {home}, and a home {only_one}: stop it first, or set "
                "FSD_HOME to another folder."
            )
        # The supervisor only ends a worker that it started.
        self._lock_metadata = LockMetadata(worker_lock, pid=os.getpid(), supervised=SUPERVISED in os.environ)
        try:
            yield
        except Stopping:  # without a claimed job, or while the database was down
            pass
        finally:
            worker_lock.close()

    def _serve(self) -> None:
        device, memory = self._executor.device.start(), self._executor.device.memory()
        url = self._settings.resolved_database_url
        database = self._executor.with_retries(lambda: open_database(url, busy_timeout=self._busy_timeout))
        self._repository = Repository(database)
        self._mirroring = Mirroring(
            self._settings.resolved_mlflow_uri, self._repository, self._executor.has_urgent_work
        )
        if self._name:
            check_unique(self._name, self._executor.with_retries(self._repository.workers))
        # Holding the lock proves that the previous worker is dead, even if its leases have not expired.
        self._executor.with_retries(lambda: self._repository.worker_lost(*self._lock_metadata.inherited))
        self._lock_metadata.settle()
        logger.info("Worker %d is ready on %s.", os.getpid(), device)
        with ExitStack() as running:
            if self._scheduler is not None:
                running.enter_context(self._scheduler(self._repository))
            heartbeat = Heartbeat(self._repository, device, self._lease, memory, self._name)
            self._heartbeat = running.enter_context(heartbeat)
            self._executor.begin(self._repository, heartbeat, self._lock_metadata)
            while not self._stop.is_set():
                if job := self._next_job():
                    self._executor.execute(job)
                    if not self._name:
                        self._mirroring.after_runs()
                elif self._only is not None and self._has_ended(self._only):
                    break
                else:
                    self._tidy()
                    self._stop.wait(POLL)
        logger.info("Worker %d ends.", os.getpid())

    def _next_job(self) -> JobView | None:
        try:
            return self._executor.with_retries(
                lambda: self._repository.claim(self._executor.kinds, self._lease, self._only)
            )
        except DataDamaged as error:  # work continues once somebody has repaired it
            logger.error("No job can be taken: %s", error)
            self._stop.wait(LAST_RETRY)
            return None

    def _has_ended(self, job_id: str) -> bool:
        """Whether a job has ended, or was deleted with its runs."""
        job = self._executor.with_retries(lambda: self._repository.find_job(job_id))
        return job is None or job.status not in UNENDED

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.stop()
        signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once

    def _tidy(self) -> None:
        """Do the work that can wait until the queue is empty."""
        if self._only is not None:
            return
        if not self._preloaded:
            self._preload()
            return
        self._lock_metadata.idle()
        if self._name:  # copies are made, and old data deleted, by the worker of a home
            return
        self._mirroring.when_idle()
        if time.monotonic() >= self._prune_at:
            self._executor.with_retries(self._prune)
            self._prune_at = time.monotonic() + 3600

    def _preload(self) -> None:
        self._preloaded = True
        try:
            self._executor.device.preload()
        except Exception as error:  # the next request for the pair reports it
            logger.warning("The first pair is not loaded yet: %s", error)
        finally:
            self._heartbeat.activity = IDLE

    def _prune(self) -> None:
        """Delete data older than the settings keep."""
        self._repository.prune_workers(timedelta(days=1))
        self._repository.prune_playground(timedelta(days=self._settings.keep_playground_days))
        if self._settings.keep_traces_days is not None:
            self._repository.prune_traces(timedelta(days=self._settings.keep_traces_days))
