"""The worker, which executes queued jobs in its own process, in the web process or on Ray.

A home has one without a name. On PostgreSQL any number of workers with names work beside it (``sharing``).

All its work consists of rows in the ``jobs`` table, claimed under a lease that a thread renews. A killed worker leaves
its job to the next one, which continues at the first unrecorded prompt.

Runs of experiments as tasks of a Ray cluster, one run a task. Ray only schedules: the database is the truth.

The worker of the application is Ray's driver. It shares each experiment among jobs of single runs, and submits a task
for each of these. A task is a worker that takes this one job under its lease, on whatever node Ray has room. If its
node dies, Ray starts it on another, where it waits for the end of the lease and goes on at the first prompt that is not
recorded. Whatever Ray forgets is submitted again as long as the database says that the job has not ended.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from fsd_core import system
from fsd_core.errors import (
    DatabaseUnavailable,
    DataDamaged,
    Misconfigured,
    TrackingUnavailable,
    UnknownName,
    WorkerRunning,
    user_message,
)
from fsd_core.settings import Settings, get_settings
from fsd_core.storage.opening import BUSY_TIMEOUT, open_database, parse, sqlite_path
from fsd_core.storage.records import UNENDED
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import JobRow
from fsd_core.system import LockMetadata, handle_hangup
from fsd_core.worker import lent_gpu
from fsd_core.worker.device import DeviceFactory, LocalDevice
from fsd_core.worker.job_executor import LAST_RETRY, JobExecutor, Stopping
from fsd_core.worker.remote_device import RemoteDevice
from fsd_core.worker.sharing import IDLE, Heartbeat, check_unique, check_worker_name
from fsd_core.worker.supervisor import SUPERVISED

if TYPE_CHECKING:
    from fsd_core.tracking import MlflowMirror


def log_to(path: Path) -> None:
    """Send the process's log to stderr and to rotating files of at most 4 MB in total."""
    file = logging.handlers.RotatingFileHandler(path, maxBytes=1_000_000, backupCount=3, encoding="utf-8")
    screen = logging.StreamHandler()
    if not sys.stderr.isatty():  # stderr is a file of the supervisor, for output that the log misses
        screen.setLevel(logging.WARNING)
    form = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, handlers=[file, screen], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs every check of the schema


logger = logging.getLogger(__name__)

_MIRROR_INTERVAL = 30.0  # seconds between two queries for runs that MLflow lacks


class Mirroring:
    """Mirrors runs without ever stopping one: an error is logged once, and the worker retries when idle.

    ``wanted`` returns whether the worker has more urgent work, which postpones the remaining copies.
    """

    def __init__(self, uri: str, repository: Repository, wanted: Callable[[], bool]) -> None:
        self._uri, self._repository, self._wanted = uri, repository, wanted
        self._down = False
        self._next = 0.0

    @cached_property
    def _mlflow(self) -> MlflowMirror:
        from fsd_core.tracking import MlflowMirror

        return MlflowMirror(self._uri)

    def after_runs(self) -> None:
        """Mirror ended runs, unless MLflow did not answer the last time: the next job should not wait for it."""
        if not self._down:
            self._sync()

    def when_idle(self) -> None:
        """Mirror the remaining runs every 30 seconds."""
        if time.monotonic() >= self._next:
            self._sync()

    def _sync(self) -> None:
        try:
            if self._repository.mlflow_deletions():
                self._mlflow.delete_pending(self._repository)
            for run in self._repository.unsynced_runs():
                if self._wanted():
                    return
                with suppress(UnknownName):  # it was deleted meanwhile
                    self._mlflow.sync(self._repository, run.id)
            self._down = False
        except DatabaseUnavailable as error:
            logger.warning("Runs are mirrored later: %s", error)
        except (TrackingUnavailable, DataDamaged) as error:
            if not self._down:
                logger.warning("%s", error)
            self._down = True
        except Exception:  # our own bugs must not cost a run either
            if not self._down:
                logger.exception("Runs are mirrored later, after an unexpected error:")
            self._down = True
        finally:
            self._next = time.monotonic() + _MIRROR_INTERVAL


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
        self._stop = system.Stop()
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
        worker_lock = system.acquire(path)
        if worker_lock is None:
            pid = (system.holder(path) or {}).get("pid", "unknown")
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

    def _next_job(self) -> JobRow | None:
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


_RAY_INTERVAL = 1.0  # seconds between two looks for jobs
_NODE_DIGITS = 8


def ray_scheduler(settings: Settings) -> SchedulerFactory:
    """Connect to the cluster that ``RAY_ADDRESS`` names, else to that of this machine, and return its scheduler.

    Raises ``InvalidSetting`` if Ray is not installed, no cluster answers, or the database is a SQLite file.
    """
    if sqlite_path(parse(settings.resolved_database_url)) is not None:
        raise Misconfigured(
            "FSD_EXECUTOR is ray, and the database is a SQLite file, which other machines cannot reach: set "
            "FSD_DATABASE_URL to a PostgreSQL database."
        )
    try:
        ray = import_module("ray")
    except ImportError:
        raise Misconfigured(
            "FSD_EXECUTOR is ray, and Ray is not installed: `pip install 'fsd-lab[ray]'`, here and on every node."
        ) from None
    try:
        ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise Misconfigured(
            f"No Ray cluster can be reached ({str(error).splitlines()[0][:200]}): start one with `ray start --head`, "
            "or set RAY_ADDRESS to that of its head."
        ) from None
    return RayScheduler(ray, settings).scheduling


class RayScheduler:
    """Keeps one task of Ray for each unended job of a single run."""

    def __init__(self, ray: Any, settings: Settings) -> None:
        """``ray``: the module, connected to a cluster."""
        self._ray = ray
        # As an argument, not as Ray's runtime environment: the address of the database may hold a password.
        self._environment = {f"FSD_{name}".upper(): str(value) for name, value in settings.without_secrets.items()}
        self._environment["FSD_EXECUTOR"] = "worker"
        self._task = ray.remote(num_cpus=1, num_gpus=settings.ray_gpus, max_retries=-1)(take_run)
        self._tasks: dict[str, Any] = {}  # by job

    @contextmanager
    def scheduling(self, repository: Repository) -> Iterator[None]:
        """Schedule what waits, in a thread, during the block."""
        stop = threading.Event()

        def watch() -> None:
            while not stop.is_set():
                try:
                    self.schedule(repository)
                except DatabaseUnavailable as error:
                    logger.warning("Nothing is scheduled meanwhile: %s", error)
                except Exception:  # Ray's, whose classes are not known without it; the next look may succeed
                    logger.exception("Nothing is scheduled meanwhile:")
                stop.wait(_RAY_INTERVAL)

        thread = threading.Thread(target=watch, name="ray", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def schedule(self, repository: Repository) -> None:
        """Submit a task for each job that has none."""
        for job_id, task in list(self._tasks.items()):
            if self._ray.wait([task], timeout=0)[0]:
                del self._tasks[job_id]
                try:
                    self._ray.get(task)
                except Exception as error:  # whatever a task may raise on another machine
                    logger.warning("The task of the job %s failed and is submitted again: %s", job_id, error)
        for job_id in repository.waiting_run_jobs():
            if job_id not in self._tasks:
                self._tasks[job_id] = self._task.remote(job_id, self._environment)


def take_run(job_id: str, environment: Mapping[str, str]) -> None:
    """Execute the job of a single run, in a process of Ray on any node, and return when it has ended."""
    os.environ.update(environment)
    get_settings.cache_clear()
    node = f"ray-{import_module('ray').get_runtime_context().get_node_id()[:_NODE_DIGITS]}"
    Worker(get_settings(), name=f"{node}-{os.getpid()}", recorded_as=node, only=job_id).run_as_thread()


RETRY, PATIENCE = 5.0, 10.0  # seconds


class InProcess:
    """Executes the jobs of the home. A context manager; a worker that ends early is restarted, as a supervisor would
    do."""

    def __init__(self, settings: Settings) -> None:
        """Build the worker. Call it from the main thread, before the pages are built. Raises ``PackageMissing``."""
        self._settings = settings
        self._worker = Worker(settings, RemoteDevice)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="worker", daemon=True)

    def __enter__(self) -> InProcess:
        lent_gpu.leave_sockets_to_parent(self._settings.port)
        lent_gpu.begin()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._worker.stop()
        self._thread.join(PATIENCE)
        self._worker.hand_back()  # what is still in the middle of a prompt

    def _work(self) -> None:
        last_message = ""
        while not self._stop.is_set():
            try:
                self._worker.run_as_thread()
            except Exception as error:
                message = str(error) if isinstance(error, WorkerRunning) else user_message(error)
                if message != last_message:
                    logger.warning("Nothing is generated here yet: %s", message)
                last_message = message
                self._stop.wait(RETRY)
