"""The application as a Space runs it: files that cannot be written, another user, one port, a disk that is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from tests.tools.sizes import PATIENCE
from tests.tools.worker_process import ROOT, free_port, until
from tests.tools.zero_gpu.app_process import small

pytestmark = pytest.mark.processes

USER = 1000
PACKAGES = Path(sys.prefix).resolve() / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
PYTHONS = (
    Path(sys.prefix).resolve() / "bin" / "python",
    *(Path(folder) / f"python{sys.version_info[0]}.{sys.version_info[1]}" for folder in ("/usr/local/bin", "/usr/bin")),
)
"""our own lies in a folder that another user may not enter, perhaps; then the system's, with our packages"""


class Machine:
    """Where a Space runs: the same files and the same bucket each time, and an empty disk."""

    def __init__(self, folder: Path) -> None:
        self.code, self.bucket, self.folder = folder / "app", folder / "bucket", folder
        self.user = {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}
        self.processes: list[subprocess.Popen[str]] = []
        self.python = next(filter(self._runs, PYTHONS), None)

    def _runs(self, python: Path) -> bool:
        command = [str(python), "-c", "import gradio_client, torch"]
        try:
            done = subprocess.run(
                command, cwd="/", env={"PYTHONPATH": str(PACKAGES)}, stderr=subprocess.DEVNULL, **self.user
            )  # type: ignore[call-overload]
        except OSError:
            return False
        return done.returncode == 0

    def new_disk(self) -> Path:
        home = Path(tempfile.mkdtemp(prefix="home-", dir=self.folder))
        self.own(home)
        return home

    def own(self, folder: Path) -> None:
        folder.chmod(0o755)
        if self.user:
            os.chown(folder, USER, USER)

    def environment(self, home: Path, port: int) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return kept | {
            "PYTHONPATH": str(PACKAGES), "HOME": str(home), "SPACE_ID": "team/lab", "SPACE_HOST": "team-lab.hf.space",
            "FSD_THREADS": "1", "GRADIO_SERVER_NAME": "127.0.0.1", "GRADIO_SERVER_PORT": str(port),
            "FSD_SNAPSHOTS": str(self.bucket),
        }  # fmt: skip

    def start(self, home: Path, port: int) -> subprocess.Popen[str]:
        """Serves until it is told to end; its words are in ``home``."""
        with (home / "said").open("w") as said:
            process = subprocess.Popen(
                [str(self.python), "app.py"], cwd=self.code, env=self.environment(home, port), stdout=said, stderr=said,
                text=True, **self.user,  # type: ignore[arg-type]
            )  # fmt: skip
        self.processes.append(process)
        until(lambda: "is ready" in (home / "said").read_text() or process.poll() is not None, "an answer")
        assert process.poll() is None, (home / "said").read_text()
        return process

    def run(self, home: Path, port: int, *arguments: str) -> str:
        return subprocess.run(
            [str(self.python), *arguments], cwd=self.code, env=self.environment(home, port), capture_output=True,
            text=True, check=True, **self.user,  # type: ignore[call-overload]
        ).stdout  # fmt: skip


@pytest.fixture
def machine() -> Iterator[Machine]:
    folder = Path(tempfile.mkdtemp(prefix="fsd-space-"))
    folder.chmod(0o755)
    machine = Machine(folder)
    for name in ("dashboard", "fsd_core", "migrations"):
        shutil.copytree(ROOT / name, machine.code / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "app.py", machine.code)
    for path in (machine.code, *machine.code.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    machine.bucket.mkdir()
    machine.own(machine.bucket)
    try:
        yield machine
    finally:
        for process in machine.processes:
            process.kill()
            process.wait()
        for path in (machine.code, *machine.code.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
        shutil.rmtree(folder)


def repository(home: Path) -> Repository:
    return Repository(open_database(f"sqlite:///{home / '.fsd-lab' / 'fsd.db'}"))


@pytest.mark.wide("test_settings.py")
def test_it_sleeps_wakes_on_an_empty_disk_and_goes_on(machine: Machine) -> None:
    """With an experiment of minutes, which no pause brings to its end."""
    if machine.python is None:
        pytest.skip("needs a Python that another user can run")
    first, port = machine.new_disk(), free_port(7900)
    app = machine.start(first, port)
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"Host": "team-lab.hf.space"})
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        assert answer.status == 200
        assert "frame-ancestors 'self' https://huggingface.co" in answer.headers["Content-Security-Policy"]
    home = str(first / ".fsd-lab")
    enqueued = ("sweep", "--thresholds", "0.1", "--limit", "600", "--enqueue")
    machine.run(first, port, "-m", "fsd_core", *enqueued)
    before = repository(first)
    (experiment,) = before.experiments()
    until(lambda: before.experiment(experiment.id).prompts_done >= 3, "the first prompts")
    app.terminate()
    assert app.wait(timeout=PATIENCE) == 0
    done = before.experiment(experiment.id)
    assert 3 <= done.prompts_done < done.prompts_total
    before._database.close()
    shutil.rmtree(home)

    second = machine.new_disk()
    app = machine.start(second, port)
    after = repository(second)
    assert after.experiment(experiment.id).prompts_done >= done.prompts_done
    until(lambda: after.experiment(experiment.id).prompts_done > done.prompts_done, "another prompt")
    job = after.experiment(experiment.id).job_id
    assert job is not None
    after.request_cancel(job)
    until(lambda: after.job(job).status == "cancelled", "its end")
    assert all(run.losses == {} for run in after.experiment(experiment.id).runs)
    other = after.create_experiment(small(1))
    until(lambda: after.experiment(other).status == "finished", "another experiment")
    app.terminate()
    assert app.wait(timeout=PATIENCE) == 0
    after._database.close()
    assert [path.name for path in machine.code.rglob("*.pyc")] == []
    assert "Traceback" not in (second / "said").read_text()
