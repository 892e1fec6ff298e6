"""The supervisor with the real worker, and with MLflow's real server."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fsd_core.errors import InvalidSetting
from fsd_core.jobs import lock
from fsd_core.jobs.mlflow_service import mlflow_service, mlflow_socket
from fsd_core.jobs.supervisor import Supervisor
from fsd_core.settings import Settings
from tests.tools.attack.http import send_request
from tests.tools.worker_process import ROOT, Home, until

# A web process in miniature: it supervises until it is killed.
WEB_PROCESS = """
import signal, sys
from fsd_core.jobs.supervisor import Supervisor
from fsd_core.settings import get_settings
with Supervisor(get_settings()):
    signal.pause()
"""


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
    return (lock.holder(home.settings.home / "worker.lock") or {}).get("pid")


def test_a_killed_worker_is_replaced_and_a_clean_stop_ends_it(home: Home) -> None:
    with Supervisor(home.settings) as supervisor:
        first = until(lambda: working(home), "a worker")
        os.kill(first, signal.SIGKILL)
        second = until(lambda: (pid := working(home)) != first and pid, "another worker")
        assert supervisor.worker.pid == second
        experiment = home.repository.create_experiment(home.sweep(limit=1))
        assert home.until_done(home.job_of(experiment)) == "finished"
    assert working(home) is None
    until(lambda: not alive(second), "the end of the worker")


def test_a_worker_outlives_a_killed_web_process_and_the_next_one_keeps_it(home: Home) -> None:
    own = {f"FSD_{k}".upper(): str(v) for k, v in home.settings.model_dump().items() if v is not None}
    web = subprocess.Popen([sys.executable, "-c", WEB_PROCESS], cwd=ROOT, env={**os.environ, **own})
    worker = until(lambda: working(home), "a worker")
    web.kill()
    web.wait()
    with Supervisor(home.settings) as supervisor:
        time.sleep(2)  # time enough to start a second one by mistake
        assert working(home) == supervisor.worker.pid == worker
    until(lambda: not alive(worker), "the worker's end")


def test_mlflow_s_pages_begin_once_the_worker_is_idle(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsd_core.jobs.supervisor.HEAD_START", 600)
    settings = home.settings.model_copy(update={"mlflow_uri": None, "mlflow_ui": True})
    with Supervisor(settings) as supervisor:
        worker, mlflow = supervisor._services
        until(lambda: worker.pid, "the worker's process")
        path = home.settings.home / "worker.lock"
        while "idle" not in (lock.holder(path) or {}):
            before = mlflow.pid
            assert before is None or "idle" in (lock.holder(path) or {})
            time.sleep(0.05)
        until(lambda: mlflow.pid, "MLflow's process")


def test_a_worker_that_cannot_start_is_tried_ever_more_rarely(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, mlflow_ui=False, device="cuda:77")  # no database either: it ends at once
    with Supervisor(settings):
        log = tmp_path / "logs" / "worker.out"
        until(lambda: log.exists() and log.read_text(), "the worker's complaint")
        assert "Traceback" not in log.read_text()
        assert "cuda:77" in log.read_text()
    assert lock.holder(tmp_path / "worker.lock") is None


def test_mlflow_is_its_owner_s_alone_and_is_found_again(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    settings.make_folders()
    environment = {**os.environ, "FSD_HOME": str(tmp_path), "MLFLOW_DISABLE_TELEMETRY": "true"}
    service = mlflow_service(settings, environment)

    def listening() -> Path | None:
        service.keep_alive()
        found = mlflow_socket(tmp_path)
        return found and Path(found)

    try:
        first = until(listening, "MLflow's server", timeout=120)
        assert send_request(f"unix:{first}", "GET", "/health")[0] == 200
        assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
        assert psutil.Process(service.pid).net_connections("inet") == []
        assert stat.S_IMODE((tmp_path / "mlflow.lock").stat().st_mode) == 0o600
        again = mlflow_service(settings, environment)
        again.keep_alive()
        assert again.pid == service.pid
        twice = subprocess.run(again.command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
        assert twice.returncode == 1
        assert "served already" in twice.stderr
        assert (tmp_path / "mlflow" / "mlflow.db").exists()
        os.kill(service.pid, signal.SIGKILL)
        until(lambda: mlflow_socket(tmp_path) is None, "the end of the server")
        second = until(listening, "another server", timeout=120)
        assert second != first
        assert not first.parent.exists()  # what the killed one left
    finally:
        service.ask_to_stop()
        assert service.wait(time.monotonic() + 20)
    assert not second.parent.exists()


def test_a_server_by_url_is_linked_and_not_started(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, mlflow_uri="https://mlflow.example.org/")
    assert settings.mlflow_url == "https://mlflow.example.org"
    assert [service.name for service in Supervisor(settings)._services] == ["The worker"]
    assert Settings(home=tmp_path, mlflow_ui=False).mlflow_url is None
    assert Settings(home=tmp_path).mlflow_url == "/mlflow"


def test_a_home_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidSetting, match="FSD_HOME"):
        Supervisor(Settings(home=tmp_path / "file" / "home"))


def test_the_lock_has_one_holder_and_forgets_the_dead(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert lock.holder(path) is None
    program = f"from fsd_core.jobs import lock; import time, pathlib; d = lock.acquire(pathlib.Path({str(path)!r})); "
    program += "d.sign(pid=1); print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert lock.holder(path) == {"pid": 1}
        assert lock.acquire(path, patience=0.1) is None
        other.kill()
        other.wait()
        assert lock.holder(path) is None
        held = lock.acquire(path)
        assert held is not None
        assert held.last_words == {"pid": 1}
        assert lock.holder(path) == {}
        held.sign(pid=2, claims={"a": "b"})
        held.sign(pid=2)  # shorter than what stood there
        assert lock.holder(path) == {"pid": 2}
        held.close()
    after = lock.acquire(path)
    assert after is not None
    assert after.last_words == {}  # its holder ended properly
    after.close()
    path.write_bytes(b'{"pid": 12, \x00\x00\x00')  # as a crash of the machine may leave it
    torn = lock.acquire(path)
    assert torn is not None
    assert torn.last_words == {}
    torn.close()
