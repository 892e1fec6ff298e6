"""``python app.py`` as it is, with its worker and MLflow, on a home of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from fsd_core import system
from fsd_core.settings import Settings
from fsd_core.storage.opening import Database, open_database
from fsd_core.storage.repository import Repository
from tests.tools.worker_process import ROOT


@dataclass
class Application:
    """One after the other on the same home, where it is started again."""

    settings: Settings
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Ours, with the settings of the home."""
        own = {f"FSD_{name}".upper(): str(value) for name, value in self.settings.model_dump().items() if value}
        return os.environ | own

    @cached_property
    def database(self) -> Database:
        return open_database(self.settings.resolved_database_url)

    @cached_property
    def repository(self) -> Repository:
        return Repository(self.database)

    def start(self) -> None:
        """Returns when it says that it is ready."""
        with (self.settings.home / "app.err").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "app.py"], cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=log,
                text=True,
            )  # fmt: skip
        self.started.append(process)
        assert process.stdout is not None
        assert self.url in process.stdout.readline(), (self.settings.home / "app.err").read_text()

    def kill(self) -> None:
        """As a machine that runs out of memory does."""
        self.started[-1].kill()
        self.started[-1].wait()

    def worker_process(self) -> int | None:
        """The process that has the worker's lock."""
        return (system.holder(self.settings.home / "worker.lock") or {}).get("pid")

    def worker(self) -> int | None:
        """The process of the worker that has told the database of itself."""
        holder = self.worker_process()
        told = self.repository.worker()
        return holder if told is not None and told.alive and told.pid == holder else None

    def close(self) -> None:
        """Ends everything, also what the application did not end."""
        self.started[-1].terminate()
        with suppress(subprocess.TimeoutExpired):
            self.started[-1].wait(20)
        for process in self.started:
            process.kill()
            process.communicate()
        for name in ("worker.lock", "mlflow.lock"):
            if left := system.holder(self.settings.home / name):
                os.kill(left["pid"], signal.SIGKILL)
