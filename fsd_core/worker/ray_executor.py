"""Runs of experiments as tasks of a Ray cluster, one run a task. Ray only schedules: the database is the truth.

The worker of the application is Ray's driver. It shares each experiment among jobs of single runs, and submits a task
for each of these. A task is a worker that takes this one job under its lease, on whatever node Ray has room. If its
node dies, Ray starts it on another, where it waits for the end of the lease and goes on at the first prompt that is not
recorded. Whatever Ray forgets is submitted again as long as the database says that the job has not ended.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from fsd_core.errors import DatabaseUnavailable, Misconfigured
from fsd_core.settings import Settings, get_settings
from fsd_core.storage.database.connection import parse, sqlite_path
from fsd_core.storage.database.repository import Repository
from fsd_core.worker.worker import SchedulerFactory, Worker

logger = logging.getLogger(__name__)

_INTERVAL = 1.0  # seconds between two looks for jobs
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
                stop.wait(_INTERVAL)

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
