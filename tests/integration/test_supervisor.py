"""``python app.py`` with the real worker and MLflow's real server: what it starts, and how it ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import psutil
import pytest

from dashboard.server.mlflow_pages import MLFLOW_STARTING
from fsd_core import system
from fsd_core.config import DecodingConfig, SweepConfig
from fsd_core.errors import Unwritable
from fsd_core.settings import Settings
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.worker.run_actions import stop_abandoned
from fsd_core.worker.supervisor import Supervisor, mlflow_service, mlflow_socket
from tests.tools.forked import Forked, ForkedApp
from tests.tools.raw_http import send_request
from tests.tools.sizes import PATIENCE
from tests.tools.worker_process import ROOT, Home, free_port, until

pytestmark = pytest.mark.processes


# A web process in miniature: it supervises until it is killed. Its worker is the command that it is given.
WEB_PROCESS = """
import signal, sys
from fsd_core.worker.supervisor import Supervisor
from fsd_core.settings import get_settings
supervisor = Supervisor(get_settings())
supervisor.worker.command = sys.argv[1:]
with supervisor:
    signal.pause()
"""
# What a supervisor sees of a worker: one that holds the lock, and is idle once there is a file that says so.
STAND_IN = """
import os, sys, time
from pathlib import Path
from fsd_core import system as lock
path, idle = map(Path, sys.argv[1:])
held = lock.acquire(path, patience=60)
about = {"pid": os.getpid(), "supervised": "FSD_SUPERVISED" in os.environ}
held.write_metadata(**about)
while True:
    if idle.exists():
        held.write_metadata(**about, idle=True)
    time.sleep(0.05)
"""


def stand_in(settings: Settings, name: str = "worker") -> list[str]:
    """The command."""
    return [sys.executable, "-c", STAND_IN, str(settings.home / f"{name}.lock"), str(settings.home / "idle")]


def counted(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows with every look at the worker."""
    keep_alive, looks = supervisor.worker.keep_alive, []
    monkeypatch.setattr(supervisor.worker, "keep_alive", lambda: looks.append(keep_alive()))
    return looks


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", mlflow_uri="http://127.0.0.1:9", mlflow_ui=False, threads=1, device="cpu")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.close()


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and was not waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def working(home: Home) -> int | None:
    """The process that holds the worker's lock."""
    return (system.holder(home.settings.home / "worker.lock") or {}).get("pid")


@pytest.mark.wide
def test_a_killed_worker_is_replaced_and_a_clean_stop_ends_it(home: Home) -> None:
    """By the real one, which does what there is to do."""
    supervisor = Supervisor(home.settings)
    real, supervisor.worker.command = supervisor.worker.command, stand_in(home.settings)
    with supervisor:
        first = until(lambda: working(home), "a worker")
        supervisor.worker.command = real
        os.kill(first, signal.SIGKILL)
        second = until(lambda: (pid := working(home)) != first and pid, "another worker")
        assert supervisor.worker.pid == second
        experiment = home.repository.create_experiment(home.sweep(limit=1))
        assert home.until_done(home.job_of(experiment)) == "finished"
        supervisor.stop(PATIENCE)
    until(lambda: not alive(second), "the end of the worker")
    assert working(home) is None


def test_a_worker_outlives_a_killed_web_process_and_the_next_one_keeps_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held() -> int | None:
        return (system.holder(settings.home / "worker.lock") or {}).get("pid")

    own = {f"FSD_{k}".upper(): str(v) for k, v in settings.model_dump().items() if v is not None}
    command = [sys.executable, "-c", WEB_PROCESS, *stand_in(settings)]
    web = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **own})
    worker = until(held, "a worker")
    web.kill()
    web.wait()
    started, supervisor = [], Supervisor(settings)
    monkeypatch.setattr("fsd_core.worker.supervisor.subprocess.Popen", lambda *command, **_: started.append(command))
    looks = counted(supervisor, monkeypatch)
    with supervisor:
        until(lambda: len(looks) > 2, "a third look")
        assert held() == supervisor.worker.pid == worker
    assert started == []
    until(lambda: not alive(worker), "the worker's end")


def test_what_a_killed_command_left_is_stopped_while_the_application_runs(settings: Settings) -> None:
    settings.make_folders()
    upgrade(settings.resolved_database_url)
    with closing(open_database(settings.resolved_database_url)) as database:
        repository = Repository(database)
        id = repository.create_experiment(SweepConfig(name="Alone", decodings=(DecodingConfig(),)), enqueue=False)
        repository.start_run(repository.experiment(id).runs[0].id, {})
        supervisor = Supervisor(settings, partial(stop_abandoned, repository, settings.home))
        supervisor.services = []
        with supervisor:
            (settings.home / "runs").mkdir(exist_ok=True)
            (settings.home / "runs" / f"{id}.lock").touch()  # as a kill leaves it
            until(lambda: repository.experiment(id).status == "stopped", "the end of what was left")


@pytest.mark.wide
def test_mlflow_s_pages_begin_once_the_worker_is_idle(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsd_core.worker.supervisor.HEAD_START", 1e9)
    supervisor = Supervisor(settings.model_copy(update={"mlflow_uri": None, "mlflow_ui": True}))
    worker, mlflow = supervisor.services
    worker.command, mlflow.command = stand_in(settings), stand_in(settings, "mlflow")
    looks = counted(supervisor, monkeypatch)
    with supervisor:
        until(lambda: system.holder(worker.path), "the worker")
        looks.clear()
        until(lambda: len(looks) > 2, "three looks at a worker that is busy")
        assert mlflow.pid is None
        (settings.home / "idle").touch()
        until(lambda: system.holder(mlflow.path), "MLflow's process")


def test_mlflow_s_pages_do_not_wait_for_ever(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsd_core.worker.supervisor.HEAD_START", 0.0)
    supervisor = Supervisor(settings.model_copy(update={"mlflow_uri": None, "mlflow_ui": True}))
    worker, mlflow = supervisor.services
    worker.command, mlflow.command = stand_in(settings), stand_in(settings, "mlflow")
    with supervisor:
        until(lambda: system.holder(mlflow.path), "MLflow's process")
        assert "idle" not in (system.holder(worker.path) or {})


@pytest.mark.wide
def test_a_worker_that_cannot_start_is_tried_ever_more_rarely(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fsd_core.worker.supervisor.SHORTEST_WAIT", 0.05)
    supervisor = Supervisor(settings)
    supervisor.worker.command = [sys.executable, "-c", "import sys; sys.exit('what is wrong')"]
    with supervisor:
        until(lambda: len(caplog.records) >= 3, "three attempts")
    waits = [record.args[2] for record in caplog.records if isinstance(record.args, tuple)]
    assert waits[:3] == pytest.approx([0.05, 0.1, 0.2])
    assert set((settings.home / "logs" / "worker.out").read_text().splitlines()) == {"what is wrong"}
    assert system.holder(settings.home / "worker.lock") is None


@pytest.mark.wide
def test_mlflow_is_its_owner_s_alone_and_is_found_again(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    settings.make_folders()
    left = tmp_path / "of-one-that-was-killed"
    left.mkdir()
    (left / "mlflow").touch()
    killed = system.acquire(settings.home / "mlflow.lock")
    assert killed is not None
    killed.write_metadata(pid=1, socket=str(left / "mlflow"))
    os.close(killed.descriptor)  # and nothing is taken back
    environment = {**os.environ, "FSD_HOME": str(settings.home), "MLFLOW_DISABLE_TELEMETRY": "true"}
    service = mlflow_service(settings, environment)

    def listening() -> Path | None:
        service.keep_alive()
        found = mlflow_socket(settings.home)
        return found and Path(found)

    try:
        first = until(listening, "MLflow's server")
        assert send_request(f"unix:{first}", "GET", "/health")[0] == 200
        assert not left.exists()
        assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
        assert psutil.Process(service.pid).net_connections("inet") == []
        assert stat.S_IMODE((settings.home / "mlflow.lock").stat().st_mode) == 0o600
        again = mlflow_service(settings, environment)
        again.keep_alive()
        assert again.pid == service.pid
        twice = subprocess.run(again.command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert twice.returncode == 1
        assert "served already" in twice.stderr
        assert (settings.home / "mlflow" / "mlflow.db").exists()
        os.kill(service.pid, signal.SIGKILL)
        until(lambda: mlflow_socket(settings.home) is None, "the end of the server")
        held = system.acquire(settings.home / "mlflow.lock")
        assert held is not None
        assert held.previous_metadata["socket"] == str(first)  # which the next one finds, as this one did
        held.close()
        shutil.rmtree(first.parent)
    finally:
        service.ask_to_stop()
        assert service.wait(time.monotonic() + PATIENCE)


def test_a_server_by_url_is_linked_and_not_started(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, mlflow_uri="https://mlflow.example.org/")
    assert settings.mlflow_url == "https://mlflow.example.org"
    assert [service.name for service in Supervisor(settings).services] == ["The worker"]
    assert Settings(home=tmp_path, mlflow_ui=False).mlflow_url is None
    assert Settings(home=tmp_path).mlflow_url == "/mlflow"


def test_a_home_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unwritable):
        Supervisor(Settings(home=tmp_path / "file" / "home"))


def test_the_lock_has_one_holder_and_forgets_the_dead(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert system.holder(path) is None
    program = (
        f"from fsd_core import system as lock; import time, pathlib; d = lock.acquire(pathlib.Path({str(path)!r})); "
    )
    program += "d.write_metadata(pid=1); print('held', flush=True); time.sleep(1e6)"
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert system.holder(path) == {"pid": 1}
        assert system.acquire(path, patience=0) is None
        other.kill()
        other.wait()
        assert system.holder(path) is None
        held = system.acquire(path)
        assert held is not None
        assert held.previous_metadata == {"pid": 1}
        assert system.holder(path) == {}
        held.write_metadata(pid=2, claims={"a": "b"})
        held.write_metadata(pid=2)  # shorter than what stood there
        assert system.holder(path) == {"pid": 2}
        held.close()
    after = system.acquire(path)
    assert after is not None
    assert after.previous_metadata == {}  # its holder ended properly
    after.close()
    path.write_bytes(b'{"pid": 12, \x00\x00\x00')  # as a crash of the machine may leave it
    torn = system.acquire(path)
    assert torn is not None
    assert torn.previous_metadata == {}
    torn.close()


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


SERVED = """
import socket, sys, threading, urllib.request
import uvicorn
from fastapi import FastAPI
import app as application

application.LEAVING = 0.5
asked = []

class Services:
    def begin_to_stop(self):
        asked.append(1)
        print("asked to stop", flush=True)

served = FastAPI()

@served.get("/")
def never_ends():
    print("in a request", flush=True)
    threading.Event().wait()

listening = socket.create_server(("127.0.0.1", 0))
url = f"http://127.0.0.1:{listening.getsockname()[1]}"
threading.Thread(target=lambda: urllib.request.urlopen(url), daemon=True).start()
config = uvicorn.Config(served, log_level="critical", timeout_graceful_shutdown=1)
application.Server(config, Services()).run(sockets=[listening])
"""


def test_a_request_that_never_ends_keeps_no_process(capfd: pytest.CaptureFixture[str]) -> None:
    process = subprocess.Popen([sys.executable, "-c", SERVED], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert "in a request\n" in (line for line in lines)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert "asked to stop\n" in list(lines)
    finally:
        process.kill()
        process.communicate()
