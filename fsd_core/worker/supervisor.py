"""Keeps the worker and MLflow's pages running beside the web process, which imports neither torch nor mlflow.

Both are processes of their own session: they outlive a web process that is killed, and the next one detects them by
their lock files (``fsd_core.worker.lock``) instead of starting a second of each. Of several web processes on one home
one supervises; another takes over when that one is gone.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path

from fsd_core.settings import Settings
from fsd_core.worker import lock
from fsd_core.worker.mlflow_service import mlflow_service
from fsd_core.worker.service import Service

logger = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]
TICK = 0.5  # seconds
HEAD_START = 20.0  # seconds that the worker has to be ready before MLflow's pages take a share of the processor


class Supervisor:
    """The worker, unless the web process computes, and MLflow's pages, where the store of runs is ours to serve; a
    context manager."""

    def __init__(self, settings: Settings) -> None:
        """Raises ``InvalidSetting`` if the home cannot be written to."""
        settings.make_folders()
        # What is started gets the settings we have, however we came by them, and finds the project from anywhere.
        own = {f"FSD_{name}".upper(): str(value) for name, value in settings.model_dump().items() if value is not None}
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        known = {name: value for name, value in os.environ.items() if name != "OAUTH_CLIENT_SECRET"}  # none of theirs
        environment = {**known, **own, "PYTHONPATH": path, "MLFLOW_DISABLE_TELEMETRY": "true"}
        logs = settings.home / "logs"
        command = (sys.executable, "-m", "fsd_core", "worker")
        self.worker = Service("The worker", command, settings.home / "worker.lock", logs / "worker.out", environment)
        self.services = [self.worker] if settings.executor == "worker" else []
        if settings.serves_mlflow:
            self.services.append(mlflow_service(settings, environment))
        self.settings = settings
        self._stop = threading.Event()
        self._lock: lock.Lock | None = None
        self._begun = 0.0
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def _supervises(self) -> bool:
        """Whether this process is the one of the home that supervises; it becomes so when no other is left."""
        if self._lock is None and (held := lock.acquire(self.settings.home / "app.lock", patience=0)) is not None:
            held.sign(pid=os.getpid())
            self._lock = held
        return self._lock is not None

    def _watch(self) -> None:
        while not self._stop.is_set():
            for service in self._due() if self._supervises() else ():
                try:
                    service.keep_alive()
                except OSError as error:  # no process, no disk: told, and tried again
                    logger.warning("%s cannot be started: %s", service.name, error)
            self._stop.wait(TICK)

    def _due(self) -> list[Service]:
        """What should be running by now: the worker at once, the others when it is idle for the first time, or late."""
        late = time.monotonic() - self._begun > HEAD_START
        ready = late or "idle" in (lock.holder(self.worker.path) or {})
        return [service for service in self.services if ready or service is self.worker]

    def __enter__(self) -> Supervisor:
        self._begun = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, patience: float = 10.0) -> None:
        """Ends what it supervises. A worker in the middle of a long prompt may take longer than ``patience``, in s."""
        self._stop.set()
        self._thread.join()
        if self._lock is None:
            return
        for service in self.services:
            service.ask_to_stop()
        deadline = time.monotonic() + patience
        for service in self.services:
            service.wait(deadline)
        self._lock.close()
        self._lock = None
