"""Keeps the worker and MLflow's pages running beside the web process, which imports neither torch nor mlflow.

Both run in their own sessions, so they outlive a killed web process. The next web process detects them by their lock
files (``fsd_core.worker.lock``) instead of starting a second copy. If several web processes share a home, one of them
supervises, and another takes over when it is gone.
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
SECRETS = ("OAUTH_CLIENT_SECRET", "FSD_WEBHOOK_SECRET", "FSD_SMTP_PASSWORD")
"""variables that no other process is given"""
AT_THE_END = 2.0  # seconds for the worker to end before the process that supervises it, which has five in all
HEAD_START = 20.0  # seconds for the worker to become ready before MLflow's pages share the processor


class Supervisor:
    """A context manager for the worker, unless the web process computes, and for MLflow's pages, if we serve the store
    of runs."""

    def __init__(self, settings: Settings) -> None:
        """Build the services. Raises ``InvalidSetting`` if the home is not writable."""
        settings.make_folders()
        # Pass on the effective settings from any source and the project's import path, but no secret.
        variables = {f"FSD_{name}".upper(): str(value) for name, value in settings.without_secrets.items()}
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        inherited = {name: value for name, value in os.environ.items() if name.upper() not in SECRETS}
        environment = {**inherited, **variables, "PYTHONPATH": path, "MLFLOW_DISABLE_TELEMETRY": "true"}
        logs = settings.home / "logs"
        command = (sys.executable, "-m", "fsd_core", "worker")
        self.worker = Service("The worker", command, settings.home / "worker.lock", logs / "worker.out", environment)
        self.services = [self.worker] if settings.executor != "in-process" else []
        if settings.serves_mlflow:
            self.services.append(mlflow_service(settings, environment))
        self.settings = settings
        self._stop = threading.Event()
        self._lock: lock.Lock | None = None
        self._started = 0.0
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def _supervises(self) -> bool:
        """Return whether this process supervises the home. It takes over if no other process does."""
        if self._lock is None and (app_lock := lock.acquire(self.settings.home / "app.lock", patience=0)) is not None:
            app_lock.write_metadata(pid=os.getpid())
            self._lock = app_lock
        return self._lock is not None

    def _watch(self) -> None:
        while not self._stop.is_set():
            for service in self._due() if self._supervises() else ():
                try:
                    service.keep_alive()
                except OSError as error:  # such as no free process or disk space: log and retry
                    logger.warning("%s cannot be started: %s", service.name, error)
            self._stop.wait(TICK)

    def _due(self) -> list[Service]:
        """Return the services that should run by now: the worker at once, the others when it is first idle or
        ``HEAD_START`` is over."""
        late = time.monotonic() - self._started > HEAD_START
        ready = late or "idle" in (lock.holder(self.worker.path) or {})
        return [service for service in self.services if ready or service is self.worker]

    def __enter__(self) -> Supervisor:
        self._started = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(AT_THE_END)

    def begin_to_stop(self) -> None:
        """Ask the supervised services to end, and start none anew."""
        self._stop.set()
        if self._lock is not None:
            for service in self.services:
                service.ask_to_stop()

    def stop(self, patience: float = 10.0) -> None:
        """End the supervised services. A worker in the middle of a long prompt may take longer than ``patience``
        seconds, and ends by itself."""
        self._stop.set()
        self._thread.join()
        self.begin_to_stop()
        if self._lock is None:
            return
        deadline = time.monotonic() + patience
        for service in self.services:
            service.wait(deadline)
        self._lock.close()
        self._lock = None
