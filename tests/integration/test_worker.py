"""The worker as it is used: a process of its own over a real database."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from fsd_core import system
from fsd_core.calibration.planning import Outcome
from fsd_core.calibration.summary import calibration_status
from fsd_core.config import DecodingConfig
from fsd_core.config.calibration_config import CalibrationConfig, engine_candidates
from fsd_core.engines import client
from fsd_core.models import threads
from fsd_core.models.loading import load_pair
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.tables import JobRow, now
from fsd_core.system import LockMetadata
from fsd_core.worker.device import LocalDevice
from fsd_core.worker.job_executor import JobExecutor
from fsd_core.worker.sharing import Heartbeat
from fsd_core.worker.worker import LEASE
from tests.tools.sizes import PATIENCE
from tests.tools.toy_engine import Request, ToyEngine
from tests.tools.worker_process import Home, until

pytestmark = pytest.mark.processes


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path, forked=True)
    yield home
    home.close()


def playground_job(home: Home, settings: int = 2) -> str:
    job = PlaygroundJob.of(home.pair, "Ava has 3 apples.", 1, home.sweep(1).decodings[:settings])
    return home.repository.enqueue(job, priority=10)


def test_a_killed_worker_loses_nothing_and_nothing_is_done_twice(home: Home) -> None:
    killed = home.repository.create_experiment(home.sweep(limit=4))
    first = home.held_worker(3)
    first.kill()
    first.wait()
    before = home.written(killed)
    assert len(before) == 3

    undisturbed = home.repository.create_experiment(home.sweep(limit=4))
    home.worker()
    assert home.until_done(home.job_of(killed)) == "finished"
    assert home.until_done(home.job_of(undisturbed)) == "finished"

    job, after = home.repository.job(home.job_of(killed)), home.written(killed)
    assert (job.attempts, job.lost_workers) == (2, 1)
    assert len(after) == 12
    assert {key: after[key] for key in before} == before
    assert after == home.written(undisturbed)
    for run in home.repository.experiment(killed).runs:
        assert (run.status, run.prompts_done) == ("finished", 4)
        assert run.metrics is not None
        assert run.metrics["n"] == 4


def test_an_idle_worker_has_loaded_the_pair_that_pages_offer_first(home: Home) -> None:
    home.worker()
    log = home.settings.home / "logs" / "worker.log"
    until(lambda: log.exists() and "Loaded bundled on cpu" in log.read_text(), "the first pair")
    until(lambda: (worker := home.repository.worker()) and worker.activity == "idle", "the worker's rest")


@pytest.mark.wide
def test_a_worker_asked_to_stop_gives_its_job_back(home: Home) -> None:
    experiment = home.repository.create_experiment(home.sweep(limit=6))
    job_id = home.job_of(experiment)
    worker = home.held_worker(2)
    worker.send_signal(signal.SIGTERM)
    home.turnstile.allow(None)
    assert worker.wait(timeout=PATIENCE) == 0
    job = home.repository.job(job_id)
    assert (job.status, job.lost_workers, job.finished_at) == ("queued", 0, None)
    assert 3 <= home.prompts_done(experiment) < 18  # what was begun is kept

    home.worker()
    assert home.until_done(job_id) == "finished"
    assert len(home.written(experiment)) == 18
    assert home.repository.job(job_id).lost_workers == 0


@pytest.mark.wide
def test_a_cancelled_experiment_keeps_what_is_done_and_frees_the_worker(home: Home) -> None:
    experiment = home.repository.create_experiment(home.sweep(limit=6))
    home.held_worker(2)
    home.repository.request_cancel(home.job_of(experiment))
    home.turnstile.allow(None)
    assert home.until_done(home.job_of(experiment)) == "cancelled"
    assert [run.status for run in home.repository.experiment(experiment).runs] == ["cancelled"] * 3
    assert len(home.written(experiment)) == home.prompts_done(experiment) == 3
    assert home.until_done(playground_job(home)) == "finished"


@pytest.mark.wide
def test_a_calibration_outlives_a_killed_worker(home: Home) -> None:
    decodings = home.sweep(1).decodings[1:]
    config = CalibrationConfig(pair=home.pair, decodings=decodings, goal="speed", limit=32, choosing=8)
    id = home.repository.create_experiment(config)
    first = home.held_worker(12)
    first.kill()
    first.wait()
    assert home.prompts_done(id) == 12
    home.worker()
    assert home.until_done(home.job_of(id)) == "finished"
    runs = home.repository.experiment(id).runs
    assert {run.status for run in runs} == {"finished"}
    assert len(home.written(id)) == sum(run.prompts_total for run in runs)
    assert isinstance(calibration_status(home.repository, config, runs), Outcome)


@pytest.mark.wide
def test_a_calibration_of_a_running_engine_is_the_worker_s_too(home: Home) -> None:
    strict = home.sweep(1).decodings[1]
    with ToyEngine(load_pair(home.pair, "cpu", "float32"), strict) as engine:
        engine.has_knob = True
        home.repository.add_engine(engine.served(), "", "Ann")
        decodings = engine_candidates(engine.served(), home.sweep(1).decodings[2:])
        config = CalibrationConfig(pair=home.pair, decodings=tuple(decodings), goal="speed", limit=24, choosing=8)
        id = home.repository.create_experiment(config)
        home.worker()
        assert home.until_done(home.job_of(id)) == "finished", home.repository.job(home.job_of(id)).error
        runs = home.repository.experiment(id).runs
        assert engine.turns > 2
    assert isinstance(calibration_status(home.repository, config, runs), Outcome)
    assert len(engine.asked) == sum(run.prompts_done for run in runs)


def test_a_cancel_does_not_wait_for_an_engine_and_the_next_job_is_done(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "DEADLINE", 20.0)
    hung: list[str] = []

    def hangs(request: Request) -> None:
        """Say nothing until the other side closes the connection; meanwhile somebody cancels."""
        request.begin()
        home.repository.request_cancel(hung[0])
        request.connection.recv(1)
        request.close_connection = True

    executor = JobExecutor(home.settings, LocalDevice, Event(), LEASE, "", "", None, scheduled=False)
    held = system.acquire(home.settings.home / "worker.lock")
    assert held is not None
    metadata = LockMetadata(held, pid=os.getpid(), supervised=False)
    with (
        closing(held),
        ToyEngine(load_pair(home.pair, "cpu", "float32"), home.sweep(1).decodings[1]) as engine,
        Heartbeat(home.repository, "cpu", LEASE) as heartbeat,
    ):
        home.repository.add_engine(engine.served(), "", "Ann")
        asked = DecodingConfig(acceptance=engine.served(), max_new_tokens=8)
        sweep = home.sweep(2).model_copy(update={"decodings": (asked,)})
        cancelled = home.repository.create_experiment(sweep)
        hung.append(home.job_of(cancelled))
        engine.faults.append(hangs)
        executor.begin(home.repository, heartbeat, metadata)
        for number in range(2):
            job = home.repository.claim(executor.kinds, LEASE)
            assert job is not None
            executor.execute(job)
            if not number:
                following = home.repository.create_experiment(sweep)
    (run,) = home.repository.experiment(cancelled).runs
    assert (home.repository.job(hung[0]).status, run.status, run.prompts_done) == ("cancelled", "cancelled", 0)
    assert home.repository.job(home.job_of(following)).status == "finished"


def test_the_playground_does_not_wait_for_an_experiment(home: Home) -> None:
    experiment = home.repository.create_experiment(home.sweep(limit=3))
    home.held_worker(1)
    job_id = playground_job(home)
    home.turnstile.allow(2)
    assert home.until_done(job_id) == "finished"
    home.turnstile.until_held()
    assert home.repository.job(home.job_of(experiment)).status == "running"
    assert home.prompts_done(experiment) == 2
    chunks = [chunk for _, chunk in home.repository.chunks(job_id, -1)]
    assert {chunk.setting for chunk in chunks} == {0, 1}
    assert sum(chunk.done for chunk in chunks) == 2
    assert all(chunk.error is None for chunk in chunks)
    home.turnstile.allow(None)
    assert home.until_done(home.job_of(experiment)) == "finished"


@pytest.mark.wide
def test_a_playground_with_another_pair_leaves_an_experiment_its_pair_s_threads(home: Home) -> None:
    executor = JobExecutor(home.settings, LocalDevice, Event(), LEASE, "", "", None, scheduled=False)
    held = system.acquire(home.settings.home / "worker.lock")
    assert held is not None
    metadata = LockMetadata(held, pid=os.getpid(), supervised=False)
    asked = PlaygroundJob.of("bundled", "Question: 1 + 1?\nAnswer:", 1, home.sweep(1).decodings[:1])
    job = home.repository.enqueue(asked, priority=10)
    with Heartbeat(home.repository, "cpu", LEASE) as heartbeat:
        executor.begin(home.repository, heartbeat, metadata)
        device = executor.device
        assert isinstance(device, LocalDevice)
        ours = device.pair(home.pair)
        executor.serve_waiting()
    held.close()
    assert home.repository.job(job).status == "finished"
    assert device.adopted is ours
    assert threads._pair is ours


@pytest.mark.wide
def test_a_job_that_cannot_be_read_fails_in_one_sentence_and_the_next_is_done(home: Home) -> None:
    payloads: dict[str, Any] = {"experiment": {}, "run": [], "playground": {"prompt": "x"}, "bounds": {"run_id": None}}
    payloads["fetch"] = {"task": None}
    with home.database.session() as session:
        session.add_all(JobRow(id=kind, kind=kind, payload=payload) for kind, payload in payloads.items())
    home.worker()
    for kind in payloads:
        assert home.until_done(kind) == "failed"
        assert (home.repository.job(kind).error or "").startswith(f"The request of this job ({kind}) cannot be read (")
    assert home.until_done(playground_job(home)) == "finished"


@pytest.mark.wide
def test_what_is_done_while_mlflow_is_away_is_mirrored_when_it_is_back(home: Home) -> None:
    experiment = home.repository.create_experiment(home.sweep(limit=1))
    away = home.worker()
    assert home.until_done(home.job_of(experiment)) == "finished"
    assert [run.mlflow_run_id for run in home.repository.experiment(experiment).runs] == [None] * 3
    away.terminate()
    assert away.wait(timeout=PATIENCE) == 0

    home.settings = home.settings.model_copy(update={"mlflow_uri": None})
    home.worker()
    until(lambda: not home.repository.unsynced_runs(), "the copies in MLflow")
    assert all(run.mlflow_run_id for run in home.repository.experiment(experiment).runs)
    assert (home.settings.mlflow_folder / "mlflow.db").exists()


@pytest.mark.wide
def test_a_home_has_one_worker(home: Home) -> None:
    first = home.worker()
    until(lambda: (state := home.repository.worker()) and state.alive and state.pid == first.pid, "the first worker")
    second = home.worker()
    said, _ = second.communicate(timeout=PATIENCE)
    assert second.returncode == 2
    assert f"process {first.pid}" in said
    assert "Traceback" not in said
    assert first.poll() is None


def test_a_worker_without_its_device_says_so_and_ends(home: Home) -> None:
    home.settings = home.settings.model_copy(update={"device": "cuda:77"})
    worker = home.worker()
    said, _ = worker.communicate(timeout=PATIENCE)
    assert worker.returncode == 2
    assert "cuda:77" in said
    assert "Traceback" not in said


@pytest.mark.wide
def test_a_pair_that_cannot_be_loaded_fails_its_runs_and_nothing_else(home: Home, tmp_path: Path) -> None:
    weights = tmp_path / "broken" / "target" / "model.safetensors"
    (tmp_path / "pair").rename(tmp_path / "broken")
    weights.write_bytes(weights.read_bytes()[:1000])
    broken = home.repository.create_experiment(home.sweep(limit=2, pair=f"path:{tmp_path / 'broken'}"))
    missing = home.repository.create_experiment(home.sweep(limit=2, pair=f"path:{tmp_path / 'missing'}"))
    worker = home.worker()
    for experiment, told in ((broken, "safetensors"), (missing, "holds no model pair")):
        home.until_done(home.job_of(experiment))
        for run in home.repository.experiment(experiment).runs:
            assert run.status == "failed"
            assert told in run.error
            assert "Traceback" not in run.error
    assert worker.poll() is None


@pytest.mark.wide
def test_a_job_over_which_workers_are_lost_is_given_up_with_its_figures_and_can_be_resumed(home: Home) -> None:
    experiment = home.repository.create_experiment(home.sweep(limit=6))
    job_id = home.job_of(experiment)
    worker = home.held_worker(4)
    worker.kill()
    worker.wait()
    with home.database.session() as session:  # as if this were the third in a row that was lost over nothing
        job = session.get_one(JobRow, job_id)
        job.stalled, job.progress = 3, 1000
    home.worker()
    assert home.until_done(job_id) == "failed"
    # The kill itself does not count, for it met a prompt that can be blamed for it.
    assert "lost 3 times in a row on this job" in (home.repository.job(job_id).error or "")
    before = home.written(experiment)
    for run in home.repository.experiment(experiment).runs:
        assert run.status == "failed"
        assert (run.metrics or {"n": 0})["n"] == run.prompts_done

    home.repository.reopen_runs([run.id for run in home.repository.experiment(experiment).runs])
    assert home.until_done(job_id) == "finished"
    after = home.written(experiment)
    assert len(after) == 18
    assert before.items() <= after.items()
    assert {run.error for run in home.repository.experiment(experiment).runs} == {None}


@pytest.mark.wide
def test_a_clock_set_back_does_not_keep_a_dead_worker_s_job(home: Home) -> None:
    experiment = home.repository.create_experiment(home.sweep(limit=2))
    job_id = home.job_of(experiment)
    worker = home.held_worker(2)
    worker.kill()
    worker.wait()
    with home.database.session() as session:  # as its lease looks when the clock goes back by an hour
        job = session.get_one(JobRow, job_id)
        job.lease_expires_at = now() + timedelta(hours=1)
    home.worker()
    assert home.until_done(job_id) == "finished"
    assert home.repository.job(job_id).lost_workers == 1


@pytest.mark.wide
def test_a_database_that_is_locked_for_a_while_costs_time_alone(home: Home) -> None:
    """For longer than a writer waits, and than a lease lasts."""
    experiment = home.repository.create_experiment(home.sweep(limit=4))
    job_id = home.job_of(experiment)
    worker = home.held_worker(2, lease=0.5, busy_timeout=0.5)
    log = home.settings.home / "logs" / "worker.log"
    with sqlite3.connect(home.settings.home / "fsd.db", isolation_level=None, timeout=PATIENCE) as blocker:
        blocker.execute("BEGIN EXCLUSIVE")
        home.turnstile.allow(None)
        until(
            lambda: {"No heartbeat", "Trying again"} <= set(re.findall("No heartbeat|Trying again", log.read_text())),
            "both",
        )
        (lease,) = blocker.execute("SELECT lease_expires_at FROM jobs WHERE id = ?", (job_id,)).fetchone()
        until(lambda: datetime.fromisoformat(lease).replace(tzinfo=UTC) < now(), "the lease to end")
        blocker.execute("ROLLBACK")
    blocker.close()
    assert home.until_done(job_id) == "finished"
    assert worker.poll() is None
    assert home.repository.job(job_id).lost_workers == 0
    assert len(home.written(experiment)) == 12
