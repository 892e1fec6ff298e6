"""A process beside the web process that is restarted when it dies. Its lock file shows whether it runs."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from fsd_core.worker import lock

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
        about = lock.holder(self.path)
        if about and "pid" in about:
            return about["pid"]
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def _supervised_pid(self) -> int | None:
        """The process to end; ``None`` if somebody started it by hand."""
        about = lock.holder(self.path) or {}
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
        if lock.holder(self.path) is None:
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
