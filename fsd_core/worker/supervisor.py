"""Keeps the worker and MLflow's pages running beside the web process, which imports neither.

MLflow's pages as a service of the web process, which does not import mlflow: how to start, find and read them.

They listen on a Unix socket in a folder that only its owner can open. So nobody else on the machine bypasses the
sign-in, and no port is needed. The holder of ``mlflow.lock`` records the socket's path in it.

Both run in their own sessions, so they outlive a killed web process. The next web process detects them by their lock
files (``fsd_core.system``) instead of starting a second copy. If several web processes share a home, one of them
supervises, and another takes over when it is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fsd_core import system
from fsd_core.settings import Settings

logger = logging.getLogger(__name__)

SHORTEST_WAIT, LONGEST_WAIT, SETTLED = 1.0, 30.0, 60.0  # seconds; a process alive for SETTLED has its wait reset
LOG_LIMIT = 1_000_000  # bytes
SUPERVISED = "FSD_SUPERVISED"
"""environment variable of processes that a supervisor starts"""


class Service:
    """A child process, identified by its lock. It is started while nobody holds the lock, and again when it dies."""

    def __init__(self, name: str, command: Sequence[str], path: Path, log: Path, environment: dict[str, str]) -> None:
        self.name, self.command, self.path, self.log = name, command, path, log
        self.environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._started = self._not_before = 0.0
        self._wait = SHORTEST_WAIT

    @property
    def pid(self) -> int | None:
        """The process that serves now, started by this or by an earlier web process."""
        about = system.holder(self.path)
        if about and "pid" in about:
            return about["pid"]
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def _supervised_pid(self) -> int | None:
        """The process to end; ``None`` if somebody started it by hand."""
        about = system.holder(self.path) or {}
        return self.pid if about.get("supervised", True) else None

    def keep_alive(self) -> None:
        """Start the process if none runs and its wait is over."""
        if self._process is not None and (status := self._process.poll()) is not None:
            self._ended(status)
        if self.pid is None and time.monotonic() >= self._not_before:
            self._start()

    def _ended(self, status: int) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # child processes that it may have left behind
        lifetime = time.monotonic() - self._started
        self._wait = SHORTEST_WAIT if lifetime > SETTLED else self._wait
        self._process, self._not_before = None, time.monotonic() + self._wait
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        if system.holder(self.path) is None:
            logger.warning("%s ended (%s) and is started again in %.0f s; see %s", self.name, how, self._wait, self.log)
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def _start(self) -> None:
        mode = "wb" if self.log.exists() and self.log.stat().st_size > LOG_LIMIT else "ab"
        with self.log.open(mode) as output:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**self.environment, SUPERVISED: "1"}, start_new_session=True,
            )  # fmt: skip
        self._started = time.monotonic()

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the process, if this or an earlier supervisor started it."""
        if pid := self._supervised_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def wait(self, deadline: float) -> bool:
        """Return whether the process has ended by ``deadline`` on the monotonic clock."""
        while (pid := self._supervised_pid) is not None:
            if time.monotonic() > deadline:
                logger.warning("%s (process %d) has not ended yet and is not waited for.", self.name, pid)
                return False
            time.sleep(0.05)
        return True


LOCK = "mlflow.lock"
_API = "/(ajax-)?api/2.0/mlflow"
GRAPHQL = "/graphql"
MLFLOW_READ_PATHS = {
    "GET": (
        r"/|/health|/version|/get-artifact",
        r"/static-files/(?!.*\.\.)[\w.@~/-]+",
        rf"{_API}/experiments/(get|get-by-name|search)",
        rf"{_API}/(runs/get|artifacts/list|metrics/get-history(-bulk|-bulk-interval)?)",
        rf"{_API}/(registered-models|model-versions)/search",
        r"/ajax-api/3.0/mlflow/server-info",
        r"/ajax-api/2.0/mlflow/gateway-proxy",  # requested by every list of runs; answers that no gateway exists
    ),
    "POST": (  # queries too long for a URL
        GRAPHQL,  # of its documents, queries alone (fsd_core/worker/mlflow_server.py)
        rf"{_API}/(experiments/(search|search-datasets)|runs/search|logged-models/search)",
        r"/(ajax-)?api/3.0/mlflow/traces/search",
    ),
}
"""Patterns of the MLflow URLs needed to view runs; all others are closed."""


def mlflow_service(settings: Settings, environment: dict[str, str]) -> Service:
    """Return MLflow's server over our own store: one process, no job runner."""
    command = (sys.executable, "-m", "fsd_core.worker.mlflow_server")
    environment = {**environment, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DEPLOYMENTS_TARGET": ""}
    return Service("MLflow", command, settings.home / LOCK, settings.home / "logs" / "mlflow.log", environment)


def mlflow_socket(home: Path) -> str | None:
    """Return the socket of a home's MLflow pages, or ``None`` while they are down."""
    return (system.holder(home / LOCK) or {}).get("socket")


def mlflow_problem(home: Path) -> str | None:
    """Return the reason why a home's MLflow pages cannot be served, or ``None``."""
    return (system.holder(home / LOCK) or {}).get("problem")


ROOT = Path(__file__).resolve().parents[2]
TICK = 0.5  # seconds
SECRETS = ("OAUTH_CLIENT_SECRET", "FSD_WEBHOOK_SECRET", "FSD_SMTP_PASSWORD")
"""variables that no other process is given"""
AT_THE_END = 2.0  # seconds for the worker to end before the process that supervises it, which has five in all
HEAD_START = 20.0  # seconds for the worker to become ready before MLflow's pages share the processor


class Supervisor:
    """A context manager for the worker, unless the web process computes, and for MLflow's pages, if we serve the store
    of runs."""

    def __init__(self, settings: Settings, upkeep: Callable[[], None] = lambda: None) -> None:
        """Build the services. ``upkeep``, which raises nothing, is called every :data:`TICK`. Raises ``InvalidSetting``
        if the home is not writable."""
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
        self.settings, self._upkeep = settings, upkeep
        self._stop = threading.Event()
        self._lock: system.Lock | None = None
        self._started = 0.0
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def _supervises(self) -> bool:
        """Return whether this process supervises the home. It takes over if no other process does."""
        if self._lock is None and (app_lock := system.acquire(self.settings.home / "app.lock", patience=0)) is not None:
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
            self._upkeep()
            self._stop.wait(TICK)

    def _due(self) -> list[Service]:
        """Return the services that should run by now: the worker at once, the others when it is first idle or
        ``HEAD_START`` is over."""
        late = time.monotonic() - self._started > HEAD_START
        ready = late or "idle" in (system.holder(self.worker.path) or {})
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
