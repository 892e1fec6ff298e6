"""``python app.py``: what it starts, what it leaves, and what it refuses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dashboard.server.mlflow_pages import MLFLOW_STARTING
from fsd_core import system
from fsd_core.config import DecodingConfig, SweepConfig
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from tests.tools.forked import Forked, ForkedApp
from tests.tools.raw_http import send_request
from tests.tools.sizes import PATIENCE
from tests.tools.worker_process import ROOT, free_port, until

pytestmark = pytest.mark.processes


class App:
    """Starts the application on a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.home, self.port = folder / "home", free_port(7900)
        self.folder = folder
        self.started: list[subprocess.Popen[str] | Forked] = []

    def start(self, **environment: str | None) -> Forked:
        """``app.py`` in a process that has loaded Gradio."""
        output = self.folder / f"{len(self.started)}.out"
        process = ForkedApp(self._variables(environment), output)
        self.started.append(process)
        return process

    def _variables(self, environment: dict[str, str | None]) -> dict[str, str]:
        own = {"FSD_HOME": str(self.home), "FSD_PORT": str(self.port), "FSD_MLFLOW_UI": "false", "FSD_THREADS": "1"}
        variables = {**os.environ, **own, **environment}
        return {name: value for name, value in variables.items() if value is not None}

    def start_as_typed(self) -> subprocess.Popen[str]:
        """``python app.py``"""
        command = [sys.executable, "app.py"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=ROOT, env=self._variables({}), stdout=pipe, stderr=pipe, text=True)
        self.started.append(process)
        return process

    def worker(self) -> int | None:
        return (system.holder(self.home / "worker.lock") or {}).get("pid")

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for name in ("worker.lock", "mlflow.lock"):
            if left := system.holder(self.home / name):
                os.kill(left["pid"], signal.SIGKILL)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(tmp_path)
    yield app
    app.close()


def ready(process: Forked) -> str:
    """What it says once it is."""
    return until(lambda: process.output.exists() and "is ready" in (said := process.output.read_text()) and said, "it")


def refused(app: App, **environment: str) -> str:
    """What the application says when it ends at once with status 2."""
    said, _ = app.start(**environment).communicate(timeout=PATIENCE)
    assert app.started[-1].returncode == 2
    assert said.count("\n") == 1
    assert "Traceback" not in said
    assert app.worker() is None
    return said


@pytest.mark.wide
def test_it_says_where_it_is_and_the_worker_comes_before_the_pages(app: App) -> None:
    """And a killed application leaves its worker to the next, which takes it along."""
    first = app.start_as_typed()
    assert first.stdout is not None
    assert f"http://127.0.0.1:{app.port}" in first.stdout.readline()
    with urllib.request.urlopen(f"http://127.0.0.1:{app.port}/", timeout=PATIENCE) as response:
        assert response.status == 200
    worker = until(app.worker, "a worker")
    assert psutil.Process(worker).nice() == psutil.Process().nice() < psutil.Process(first.pid).nice()
    first.kill()
    first.wait()
    second = app.start()
    ready(second)
    assert app.worker() == worker
    second.send_signal(signal.SIGINT)
    assert second.wait(timeout=PATIENCE) == 0
    until(lambda: app.worker() is None, "the worker's end")


@pytest.mark.wide
def test_a_hangup_ends_it_with_its_worker_and_the_run_waits(app: App) -> None:
    process = app.start()
    ready(process)
    repository = Repository(open_database(f"sqlite:///{app.home / 'fsd.db'}"))
    experiment = repository.create_experiment(SweepConfig(name="long", limit=200, decodings=(DecodingConfig(),)))
    until(lambda: repository.experiment(experiment).runs[0].prompts_done > 0, "the first prompt")
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=PATIENCE) == 0
    until(lambda: app.worker() is None, "the worker's end")
    assert repository.experiment(experiment).runs[0].status == "queued"
    assert repository.job(experiment).status == "queued"


@pytest.mark.wide
def test_on_spaces_it_listens_to_the_world_on_the_port_of_gradio(app: App) -> None:
    port = free_port(app.port + 1)
    process = app.start(SPACE_ID="team/lab", FSD_PORT=None, FSD_MLFLOW_UI=None, GRADIO_SERVER_PORT=str(port))
    assert f"http://localhost:{port}" in ready(process)
    until(app.worker, "a worker")
    until(lambda: mlflow_answers(port), "MLflow's pages behind the same port")
    mlflow = psutil.Process((system.holder(app.home / "mlflow.lock") or {})["pid"])
    assert mlflow.net_connections("inet") == []  # nobody reaches it past the application
    process.terminate()
    assert process.wait(timeout=PATIENCE) == 0
    until(lambda: app.worker() is None, "the worker's end")
    assert system.holder(app.home / "mlflow.lock") is None


def mlflow_answers(port: int) -> bool:
    """Whether MLflow's pages are up; until then a sentence says that they are not."""
    status, _, text = send_request(f"http://127.0.0.1:{port}", "GET", "/mlflow/version")
    assert status == 200 or (status, text.decode()) == (503, MLFLOW_STARTING)
    return status == 200


def test_a_port_in_use_is_told(app: App) -> None:
    with socket.create_server(("127.0.0.1", app.port)):
        said = refused(app)
    assert f"127.0.0.1:{app.port}" in said
    assert "FSD_PORT" in said


def test_a_database_of_others_is_not_upgraded_behind_their_back(app: App, tmp_path: Path) -> None:
    said = refused(app, FSD_DATABASE_URL=f"sqlite:///{tmp_path / 'theirs.db'}")
    assert "python -m fsd_core db upgrade" in said
    assert not (tmp_path / "theirs.db").exists()


def test_a_variable_that_cannot_be_read_is_told(app: App) -> None:
    assert "port" in refused(app, FSD_PORT="many")


@pytest.mark.wide
def test_arguments_go_before_variables(app: App, tmp_path: Path) -> None:
    port, other = free_port(app.port + 1), tmp_path / "other"
    environment = app._variables({"FSD_HOST": "nowhere.invalid"})
    process = ForkedApp(
        environment, tmp_path / "said", "--host", "127.0.0.1", "--port", str(port), "--home", str(other)
    )
    app.started.append(process)
    app.home = other
    assert f"http://127.0.0.1:{port}" in ready(process)
    assert (other / "fsd.db").exists()
    assert not (tmp_path / "home").exists()
    until(app.worker, "the worker of that home")
    process.terminate()
    assert process.wait(timeout=PATIENCE) == 0
