"""The application as a Space runs it, on ZeroGPU too: another user, one port, a disk that is lost."""

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

from fsd_core.config import Autoregressive, DecodingConfig, Speculative
from fsd_core.metrics import EXECUTOR, SHARED_EXECUTOR
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from tests.tools.sizes import PATIENCE
from tests.tools.worker_process import ROOT, free_port, until
from tests.tools.zero_gpu.app_process import Space, small

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


ENDED = ("finished", "failed", "cancelled")


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Space]:
    space = Space(tmp_path_factory.mktemp("space"), free_port(8300))
    space.start()
    yield space
    space.kill()


def done(repository: Repository, job: str) -> str:
    until(lambda: repository.job(job).status in ENDED, f"the end of {job}")
    return repository.job(job).status


def texts(repository: Repository, experiment: str) -> dict[tuple[str, int], str]:
    return {
        (run.setting_id, generation.position): generation.text
        for run in repository.experiment(experiment).runs
        for generation in repository.generations(run.id)
    }


def test_a_text_and_an_experiment_are_written_by_a_forked_process_and_marked(space: Space) -> None:
    assert (space.folder / "started").exists()  # which Gradio's launch would have done
    assert (space.folder / "auto-wrap-off").exists()
    repository, process = space.repository, space.process
    assert process is not None
    settings = [DecodingConfig(acceptance=rule, max_new_tokens=40) for rule in (Autoregressive(), Speculative())]
    asked = PlaygroundJob.of("bundled", "Ava has 3 apples and buys 4 more. How many has she?", 1, settings)
    job = repository.enqueue(asked, priority=10)
    assert done(repository, job) == "finished"
    chunks = [chunk for _, chunk in repository.chunks(job)]
    written = ["".join(t.text for c in chunks if c.setting == i for t in c.tokens) for i in (0, 1)]
    assert written[0] == written[1] != ""  # greedy, and lossless
    assert len(chunks) > 2  # as they come

    experiment = repository.create_experiment(small(2))
    job_id = repository.experiment(experiment).job_id
    assert job_id is not None
    assert done(repository, job_id) == "finished"
    assert len(texts(repository, experiment)) == 6
    for run in repository.experiment(experiment).runs:
        assert run.metrics is not None
        assert run.metrics["n"] == 2
        assert run.speed_mixed == (SHARED_EXECUTOR,)
        assert [sitting.conditions[EXECUTOR] for sitting in run.measurement_sessions] == ["ZeroGPU"]
    ids = ",".join(run.id for run in repository.experiment(experiment).runs)
    with urllib.request.urlopen(f"{space.url}/export/comparison.csv?runs={ids}", timeout=PATIENCE) as answer:
        header, *rows = answer.read().decode().splitlines()
    assert "speed_mixed" in header
    assert all(SHARED_EXECUTOR in row for row in rows)
    assert len(rows) == 3

    assert {call["call"] for call in space.calls} == {"PlaygroundCall", "DescribeCall", "RunSlice"}
    assert {call["parent"] for call in space.calls} == {process.pid}
    assert process.pid not in {call["pid"] for call in space.calls}
    assert {call["duration"] for call in space.calls} == {10}
    worker = repository.worker()
    assert worker is not None
    assert (worker.pid, worker.device) == (process.pid, "ZeroGPU")


@pytest.mark.wide
def test_a_gpu_that_is_taken_back_or_not_lent_loses_nothing(space: Space) -> None:
    slices = len([call for call in space.calls if call["call"] == "RunSlice"])
    (space.folder / "abort").write_text("5")
    repository = space.repository
    aborted = repository.create_experiment(small(3))
    assert done(repository, aborted) == "finished"
    assert not (space.folder / "abort").exists()
    assert len(texts(repository, aborted)) == 9
    assert len({call["pid"] for call in [c for c in space.calls if c["call"] == "RunSlice"][slices:]}) == 2

    (space.folder / "abort").write_text("4")
    space.hold(2)
    cut = repository.create_experiment(small(5, "cut"))
    space.until_held()
    (space.folder / "refuse").write_text("You have exceeded your free ZeroGPU quota (10s requested vs. 3s left).")
    space.release()
    assert done(repository, cut) == "failed"
    job = repository.job(cut)
    assert job.error is not None
    assert "exceeded your free ZeroGPU quota" in job.error
    kept = texts(repository, cut)
    assert 0 < len(kept) < 15
    assert all(run.error == job.error for run in repository.experiment(cut).runs)
    assert all(g.outcome != "failed" for run in repository.experiment(cut).runs for g in repository.generations(run.id))

    (space.folder / "refuse").unlink()
    space.hold(2)
    repository.reopen_runs([run.id for run in repository.experiment(cut).runs])
    space.until_held()
    assert repository.experiment(cut).prompts_done > len(kept)
    assert {key: text for key, text in texts(repository, cut).items() if key in kept} == kept
    repository.request_cancel(cut)
    space.release()
    assert done(repository, cut) == "cancelled"
    ended = len(texts(repository, cut))
    job = repository.enqueue(PlaygroundJob.of("bundled", "1 + 1?", 1, [DecodingConfig(max_new_tokens=8)]), priority=10)
    assert done(repository, job) == "finished"
    assert len(texts(repository, cut)) == ended < 15


@pytest.mark.wide
def test_the_playground_does_not_wait_for_an_experiment_and_stops_when_asked(space: Space) -> None:
    """The last of those with this app, which it ends."""
    repository = space.repository
    space.hold(1)
    experiment = repository.create_experiment(small(60))
    space.until_held()
    job = repository.enqueue(PlaygroundJob.of("bundled", "1 + 1?", 1, [DecodingConfig(max_new_tokens=8)]), priority=10)
    space.hold(1)
    assert done(repository, job) == "finished"
    space.until_held()
    assert repository.job(experiment).status == "running"
    assert space.process is not None
    space.process.terminate()
    space.release()
    assert space.stop() == 0
    assert repository.job(experiment).status == "queued"
    assert repository.job(experiment).lost_workers == 0


@pytest.mark.wide
def test_an_app_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    space = Space(tmp_path, free_port(8300))
    try:
        check_that_it_goes_on(space)
    finally:
        space.kill()


def check_that_it_goes_on(space: Space) -> None:
    space.hold(4)
    space.start()
    repository = space.repository
    experiment = repository.create_experiment(small(3))
    job_id = repository.experiment(experiment).job_id
    assert job_id is not None
    space.until_held()
    space.kill()
    before = texts(repository, experiment)
    assert len(before) == 4
    space.release()
    space.start()
    assert done(repository, job_id) == "finished"
    assert repository.job(job_id).lost_workers == 1
    after = texts(repository, experiment)
    assert len(after) == 9
    assert {key: after[key] for key in before} == before

    undisturbed = repository.create_experiment(small(3, "undisturbed"))
    assert done(repository, undisturbed) == "finished"
    assert texts(repository, undisturbed) == after
