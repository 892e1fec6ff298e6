"""What a signal ends is listed as what it is, here and in MLflow, and never as running."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsd_core.evaluation import harness
from fsd_core.settings import Settings
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from fsd_core.tracking import MlflowMirror
from fsd_core.worker import lent_gpu, worker
from fsd_core.worker.device import LocalDevice
from fsd_core.worker.worker import InProcess
from tests.tools.forked import Forked, ForkedCommand
from tests.tools.mirrored import sync_pending
from tests.tools.sizes import PATIENCE, some
from tests.tools.tracking_examples import run_config, sweep
from tests.tools.turnstile import Turnstile
from tests.tools.worker_process import Home, until

pytestmark = pytest.mark.processes

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def served_home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path, forked=True)
    yield home
    home.close()


def statuses(repository: Repository) -> set[str]:
    return {run.status for run in repository.runs()}


@pytest.mark.wide
@pytest.mark.parametrize("number", SIGNALS)
def test_the_runs_of_a_worker_wait_for_the_next(served_home: Home, number: int) -> None:
    repository = served_home.repository
    experiment = repository.create_experiment(served_home.sweep(limit=2))
    worker = served_home.held_worker(1)
    assert statuses(repository) == {"running"}
    worker.send_signal(number)
    served_home.turnstile.allow(None)
    assert worker.wait(timeout=PATIENCE) == 0
    assert statuses(repository) == {"queued"}
    assert repository.experiment(experiment).status == "queued"
    assert repository.job(served_home.job_of(experiment)).lost_workers == 0


def test_the_runs_of_a_killed_worker_wait_once_the_next_one_knows(served_home: Home) -> None:
    repository = served_home.repository
    repository.create_experiment(served_home.sweep(limit=2))
    job = repository.claim(("experiment",), 60)
    assert job is not None
    repository.start_run(repository.runs()[0].id, {})
    repository.worker_lost({job.id: str(job.claim_token)}, {})
    assert statuses(repository) == {"queued"}


@pytest.mark.wide
@pytest.mark.parametrize("number", some(SIGNALS, SIGNALS[0]))
def test_an_experiment_of_the_command_line_is_stopped_and_goes_on(tmp_path: Path, toy: str, number: int) -> None:
    options = ("--pair", toy, "--task", "arithmetic", "--limit", "2", "--max-new-tokens", "8", "--no-baselines")
    environment = {**os.environ, "FSD_HOME": str(tmp_path / "home"), "FSD_MLFLOW_URI": "http://127.0.0.1:9"}
    turnstile = Turnstile(held := tmp_path / "turnstile", 1)
    command = ("sweep", "--thresholds", "0.1,0.3", *options)
    process = ForkedCommand(command, environment, tmp_path / "printed", held)
    try:
        turnstile.until_held()
        process.send_signal(number)
        assert process.wait(PATIENCE) == (130 if number == signal.SIGINT else 128 + number)
    finally:
        process.kill()
    repository = Repository(open_database(f"sqlite:///{tmp_path / 'home' / 'fsd.db'}"))
    (experiment,) = repository.experiments()
    assert statuses(repository) == {"stopped"}
    assert experiment.status == "stopped"
    assert not experiment.under_way
    again = ForkedCommand(command, environment, tmp_path / "printed-again")
    assert again.wait(PATIENCE) == 0
    assert f"Continuing the experiment {experiment.id}" in again.output.read_text()
    assert [run.status for run in repository.runs()] == ["finished", "finished"]


def _mirror_held(arguments: tuple[str, ...], held: Path) -> None:
    """The command, held where MLflow has the copy of the run and does not know yet that it has ended."""
    from mlflow import MlflowClient

    from fsd_core.cli.commands import main

    def pause(*_: object) -> None:
        held.touch()
        threading.Event().wait()

    MlflowClient.log_artifacts = pause
    main(arguments)


@pytest.mark.wide
def test_a_copy_whose_making_is_interrupted_is_not_left_running_in_mlflow(tmp_path: Path, toy: str) -> None:
    settings = Settings(home=tmp_path / "home")
    options = ("--pair", toy, "--task", "arithmetic", "--limit", "1", "--max-new-tokens", "4", "--no-baselines")
    environment = {**os.environ, "FSD_HOME": str(settings.home)}
    command = ("sweep", "--thresholds", "0.1", *options)
    process = Forked(_mirror_held, (command, held := tmp_path / "held"), environment, tmp_path / "printed")
    try:
        until(held.exists, "the copy")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    finally:
        process.kill()
    repository = Repository(open_database(settings.resolved_database_url))
    assert statuses(repository) == {"finished"}
    assert set(in_mlflow(settings)) == {"FINISHED"}
    assert sync_pending(MlflowMirror(settings.resolved_mlflow_uri), repository) == 1
    assert in_mlflow(settings) == ["FINISHED", "FINISHED"]


@pytest.mark.wide
def test_an_experiment_that_goes_on_is_not_running_in_mlflow(tmp_path: Path) -> None:
    """For nobody would tell MLflow if it did not go on."""
    settings = Settings(home=tmp_path / "home")
    settings.make_folders()
    home = Home(tmp_path)
    experiment = home.repository.create_experiment(sweep(), enqueue=False)
    first, *_ = home.repository.experiment(experiment).runs
    home.repository.fail_run(first.id, "The weights are missing.")
    home.repository.stop_runs(experiment)
    mirror = MlflowMirror(settings.resolved_mlflow_uri)
    mirror.sync(home.repository, first.id)
    assert sorted(in_mlflow(settings)) == ["FAILED", "SCHEDULED"]
    single = home.repository.create_run(run_config())
    home.repository.start_run(single, {})
    home.repository.stop_runs(single)
    mirror.sync(home.repository, single)
    assert sorted(in_mlflow(settings)) == ["FAILED", "KILLED", "SCHEDULED"]
    home.close()


def in_mlflow(settings: Settings) -> list[str]:
    """The statuses of all runs there."""
    from mlflow import MlflowClient

    client = MlflowClient(settings.resolved_mlflow_uri)
    return [run.info.status for run in client.search_runs([e.experiment_id for e in client.search_experiments()])]


@pytest.mark.wide
def test_a_worker_as_a_thread_hands_back_what_it_cannot_end(
    served_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the prompt takes longer than the application waits for it."""
    monkeypatch.setattr(worker, "RemoteDevice", LocalDevice)
    monkeypatch.setattr(worker, "PATIENCE", 0.0)
    for name in ("leave_sockets_to_parent", "begin"):
        monkeypatch.setattr(lent_gpu, name, lambda *_: None)
    monkeypatch.setattr(harness, "written", harness.written)  # which the turnstile replaces
    repository = served_home.repository
    experiment = repository.create_experiment(served_home.sweep(limit=2))
    turnstile = Turnstile(tmp_path / "thread", 1)
    turnstile.stand()
    with InProcess(served_home.settings) as process:
        turnstile.until_held()
        assert statuses(repository) == {"running"}
    assert statuses(repository) == {"queued"}
    assert repository.job(served_home.job_of(experiment)).status == "queued"
    turnstile.allow(None)
    process._thread.join()
    assert statuses(repository) == {"queued"}
