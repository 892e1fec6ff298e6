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
from fsd_core.settings import Settings, get_settings
from fsd_core.storage.opening import BUSY_TIMEOUT, open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.testing import save_toy_pair
from fsd_core.worker.worker import LEASE, Worker
from tests.tools.forked import Forked
from tests.tools.sizes import PATIENCE
from tests.tools.turnstile import Turnstile

ROOT = Path(__file__).resolve().parents[2]
T = TypeVar("T")
First = Callable[[], None] | None


def until(condition: Callable[[], T | None], what: str, timeout: float = PATIENCE) -> T:
    """The condition's first value that is true."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"Waited {timeout:.0f} s in vain for this: {what}.")


def free_port(first: int) -> int:
    """The first port from ``first`` on that nothing on this machine's loopback listens on.

    Tests side by side take turns: what is free for one of them is not yet listened on by what another has started.
    """
    place = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    beside = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    for port in range(first + (place - first) % beside, first + 200, beside):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError(f"No port from {first} to {first + 199} is free.")


def _work(first: First, name: str) -> None:
    from fsd_core.cli.commands import main

    if first is not None:
        first()
    main(("worker", "--on", name) if name else ("worker",))


def _work_held(first: First, turnstile: Turnstile, lease: float, busy_timeout: float, name: str) -> None:
    if first is not None:
        first()
    turnstile.stand()
    Worker(get_settings(), lease=lease, busy_timeout=busy_timeout, name=name).run()


class Home:
    """A home folder in use. MLflow is away, which nothing here may mind.

    ``forked``: whether a worker comes from a process that has loaded what it needs, and not from the command line.
    ``database_url``: of an empty PostgreSQL database; default: SQLite in the home.
    """

    def __init__(self, folder: Path, forked: bool = False, database_url: str | None = None) -> None:
        self.forked = forked
        self.settings = Settings(
            home=folder / "home", mlflow_uri="http://127.0.0.1:9", mlflow_ui=False, threads=1, device="cpu",
            database_url=database_url,
        )  # fmt: skip
        self.settings.make_folders()
        self.pair = save_toy_pair(folder / "pair")
        upgrade(self.settings.resolved_database_url)
        self.database = open_database(self.settings.resolved_database_url)
        self.repository = Repository(self.database)
        self.turnstile = Turnstile(folder / "turnstile")
        self.started: list[subprocess.Popen[str] | Forked] = []

    @property
    def environment(self) -> dict[str, str]:
        """Ours, with the settings of the home."""
        own = {f"FSD_{k}".upper(): str(v) for k, v in self.settings.model_dump().items() if v is not None}
        return {**os.environ, **own}

    def worker(self, *command: str, first: First = None, name: str = "") -> subprocess.Popen[str] | Forked:
        """A new worker process; ``command``: Python's arguments, where it is not the usual one.

        ``first`` is called in one that is forked before it begins, and ``name`` is what that one works under.
        """
        if self.forked and not command:
            return self._forked(_work, (first, name))
        process = subprocess.Popen(
            [sys.executable, *(command or ("-m", "fsd_core", "worker"))],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def held_worker(
        self,
        prompts: int,
        lease: float = LEASE,
        busy_timeout: float = BUSY_TIMEOUT,
        first: First = None,
        name: str = "",
    ) -> Forked:
        """A new worker that has recorded so many prompts, and is held by ``turnstile`` in the midst of the next.

        ``lease`` and ``busy_timeout``, in seconds, and ``name`` as in :class:`Worker`; ``first`` as above.
        """
        self.turnstile.allow(prompts)
        process = self._forked(_work_held, (first, self.turnstile, lease, busy_timeout, name))
        self.turnstile.until_held()
        return process

    def _forked(self, call: Callable[..., None], arguments: tuple[object, ...]) -> Forked:
        output = self.settings.home / f"worker-{len(self.started)}.out"
        process = Forked(call, arguments, self.environment, output)
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

    def until_done(self, job_id: str, timeout: float = PATIENCE) -> str:
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
