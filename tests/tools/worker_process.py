"""A home with a database and a toy pair, and real worker processes that serve it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from fsd_core.config import Autoregressive, DecodingConfig, Fuzzy, SamplingConfig, Speculative, SweepConfig
from fsd_core.settings import Settings
from fsd_core.testing.toy import save_toy_pair
from fsd_core.tracking.database.repository import Repository
from fsd_core.tracking.database.session import open_database, upgrade
from tests.tools.forked import ForkedCommand

ROOT = Path(__file__).resolve().parents[2]
T = TypeVar("T")


def until(condition: Callable[[], T | None], what: str, timeout: float = 60.0) -> T:
    """The condition's first value that is true."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"Waited {timeout:.0f} s in vain for this: {what}.")


def free_port(first: int) -> int:
    """The first port from ``first`` on that nothing on this machine's loopback listens on."""
    for port in range(first, first + 200):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError(f"No port from {first} to {first + 199} is free.")


class Home:
    """A home folder in use. MLflow is away, which nothing here may mind.

    ``forked``: whether a worker comes from a process that has loaded what it needs, and not from the command line.
    """

    def __init__(self, folder: Path, forked: bool = False) -> None:
        self.forked = forked
        self.settings = Settings(
            home=folder / "home", mlflow_uri="http://127.0.0.1:9", mlflow_ui=False, threads=1, device="cpu"
        )
        self.pair = save_toy_pair(folder / "pair")
        upgrade(self.settings.resolved_database_url)
        self.database = open_database(self.settings.resolved_database_url)
        self.repository = Repository(self.database)
        self.started: list[subprocess.Popen[str] | ForkedCommand] = []

    def worker(self, *command: str) -> subprocess.Popen[str] | ForkedCommand:
        """A new worker process; ``command``: Python's arguments, where it is not the usual one."""
        own = {f"FSD_{k}".upper(): str(v) for k, v in self.settings.model_dump().items() if v is not None}
        if self.forked and not command:
            output = self.settings.home / f"worker-{len(self.started)}.out"
            self.started.append(ForkedCommand(("worker",), {**os.environ, **own}, output))
            return self.started[-1]
        process = subprocess.Popen(
            [sys.executable, *(command or ("-m", "fsd_core", "worker"))],
            cwd=ROOT,
            env={**os.environ, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        for process in self.started:
            with suppress(ProcessLookupError):
                process.kill()
            process.communicate()
        self.database.close()

    def sweep(self, limit: int, pair: str | None = None, tokens: int = 24) -> SweepConfig:
        """The target alone, SD and FSD on the first problems of the bundled task."""
        return SweepConfig(
            name="toy",
            pair=pair or self.pair,
            limit=limit,
            decodings=tuple(
                DecodingConfig(acceptance=rule, sampling=SamplingConfig(temperature=1.0), max_new_tokens=tokens)
                for rule in (Autoregressive(), Speculative(), Fuzzy(threshold=0.2))
            ),
        )

    def job_of(self, experiment_id: str) -> str:
        """The id of the experiment's job."""
        job_id = self.repository.experiment(experiment_id).job_id
        assert job_id is not None
        return job_id

    def prompts_done(self, experiment_id: str) -> int:
        return self.repository.experiment(experiment_id).prompts_done

    def until_done(self, job_id: str, timeout: float = 90.0) -> str:
        """How the job ended."""
        ended = ("finished", "failed", "cancelled")
        until(lambda: self.repository.job(job_id).status in ended, f"the end of job {job_id}", timeout)
        return self.repository.job(job_id).status

    def written(self, experiment_id: str) -> dict[tuple[str, int], list[tuple[int, ...]]]:
        """The tokens of every prompt, by setting and position; fails on a prompt that is recorded twice."""
        found: dict[tuple[str, int], list[tuple[int, ...]]] = {}
        for run in self.repository.experiment(experiment_id).runs:
            for generation in self.repository.generations(run.id):
                key = (run.setting_id, generation.position)
                assert key not in found
                found[key] = [record.emitted for record in self.repository.trace(generation.id)]
        return found
