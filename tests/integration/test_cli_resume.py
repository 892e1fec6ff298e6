"""Runs that were killed or ended by a signal are listed as such, and one command goes on with them."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fsd_core import system
from fsd_core.config.calibration_config import CalibrationConfig, candidates
from fsd_core.errors import DatabaseUnavailable
from fsd_core.evaluation import harness
from fsd_core.settings import Settings
from fsd_core.storage.opening import open_database
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.tracking import MlflowMirror
from fsd_core.worker import lent_gpu, worker
from fsd_core.worker.device import LocalDevice
from fsd_core.worker.worker import InProcess
from tests.tools.forked import Forked, ForkedCommand
from tests.tools.mirrored import sync_pending
from tests.tools.sizes import PATIENCE, some
from tests.tools.tracking_examples import generation, run_config, sweep
from tests.tools.turnstile import Turnstile
from tests.tools.worker_process import Home, until

pytestmark = pytest.mark.processes


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def without_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its store would be made anew for every home, which takes seconds."""
    monkeypatch.setenv("FSD_MLFLOW_URI", "http://127.0.0.1:9")


def runs_of(home: Path) -> list[RunView]:
    return Repository(open_database(f"sqlite:///{home / 'fsd.db'}")).runs(descending=False)


def killed(home: Path, arguments: Sequence[str]) -> list[RunView]:
    """Starts a command in a process of its own and kills it in the midst of its fourth prompt; the runs as they then
    stand.
    """
    turnstile = Turnstile(home.with_suffix(".turnstile"), 3)
    environment = {**os.environ, "FSD_HOME": str(home)}
    process = ForkedCommand(tuple(arguments), environment, home.with_suffix(".out"), home.with_suffix(".turnstile"))
    try:
        turnstile.until_held()
        run = runs_of(home)[0]
        holder = system.holder(home / "runs" / f"{run.experiment_id or run.id}.lock")
        assert (holder or {})["pid"] == process.pid
    finally:
        process.kill()
        process.wait()
    return runs_of(home)


def left_off(home: Path, arguments: Sequence[str], call: Call, monkeypatch: pytest.MonkeyPatch) -> list[RunView]:
    """As :func:`killed`, but in this process, which stops at the same prompt."""

    class Killed(BaseException):
        """The end of a process, as far as one process can play it."""

    def stop(pair: object, tokens: list[int]) -> str:
        passed.append(tokens)
        if len(passed) > 3:
            raise Killed
        return written(pair, tokens)

    passed, written = [], harness.written
    with monkeypatch.context() as patch:
        patch.setattr(harness, "written", stop)
        with pytest.raises(Killed):
            call(*arguments)
    return runs_of(home)


def texts(home: Path, runs: Sequence[RunView]) -> dict[tuple[str, int], str]:
    repository = Repository(open_database(f"sqlite:///{home / 'fsd.db'}"))
    return {(run.setting_id, g.position): g.text for run in runs for g in repository.generations(run.id)}


RUN, SWEEP = ("run", "--threshold", "0.2"), ("sweep", "--thresholds", "0.1,0.3", "--no-baselines")


@pytest.mark.usefixtures("without_mlflow")
@pytest.mark.parametrize(
    ("command", "how", "by_id"),
    [(SWEEP, "killed", True), *some([(RUN, "left off", False), (SWEEP, "left off", False), (RUN, "left off", True)])],
)
def test_what_was_killed_goes_on_and_writes_the_undisturbed_texts(
    call: Call,
    home: Path,
    toy: str,
    command: tuple[str, ...],
    how: str,
    by_id: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = (
        *command, "--pair", toy, "--task", "arithmetic", "--limit", "4", "--max-new-tokens", "24", "--temperature", "1",
    )  # fmt: skip
    left = killed(home, arguments) if how == "killed" else left_off(home, arguments, call, monkeypatch)
    before = texts(home, left)
    assert {run.status for run in left} == {"running" if how == "killed" else "stopped"}
    assert len(before) == 3

    id = left[0].experiment_id or left[0].id
    again = ("resume", id[:6].upper()) if by_id else arguments
    status, out, err = call(*again, "--json")
    assert status == 0
    assert by_id or f"Continuing the {'run' if command[0] == 'run' else 'experiment'} {id}" in err
    told = json.loads(out)
    assert id in (told.get("experiment_id"), told.get("run_id"))
    resumed = runs_of(home)
    assert [(run.id, run.status, run.prompts_done) for run in resumed] == [(r.id, "finished", 4) for r in left]
    assert not list((home / "runs").iterdir())

    assert call(*arguments)[0] == 0
    undisturbed = texts(home, [run for run in runs_of(home) if run.id not in {r.id for r in left}])
    after = texts(home, resumed)
    assert len(after) == 4 * len(left)
    assert after == undisturbed
    assert before.items() <= after.items()

    status, out, err = call("resume", id)
    assert (status, out) == (2, "")
    assert f"{id} is finished, and none of its prompts failed" in err


def refused(call: Call, id: str) -> str:
    status, out, err = call("resume", id)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.usefixtures("without_mlflow")
@pytest.mark.wide
def test_what_is_at_work_is_left_alone(call: Call, home: Path, repository: Repository) -> None:
    run_id = repository.create_run(run_config())
    experiment_id = repository.create_experiment(sweep(), enqueue=False)
    (home / "runs").mkdir()
    experiment = ("experiment", experiment_id, [experiment_id, runs_of(home)[-1].id])
    for what, id, ids in (("run", run_id, [run_id]), experiment):
        held = system.acquire(home / "runs" / f"{id}.lock")
        assert held is not None
        held.write_metadata(pid=4711)
        for asked in ids:
            assert f"Another process (4711) is working on the {what} {id}" in refused(call, asked)
        held.close()
        (home / "runs" / f"{id}.lock").unlink()  # as a process that ends removes it
    assert {run.status for run in runs_of(home)} == {"queued"}


@pytest.mark.usefixtures("without_mlflow")
def test_a_calibration_at_work_keeps_its_runs_as_they_are(call: Call, home: Path, repository: Repository) -> None:
    asked = CalibrationConfig(decodings=tuple(candidates({"acceptance": "ensemble", "draft_length": 5})), limit=400)
    id = repository.create_experiment(asked, enqueue=False)
    repository.extend_experiment(id, asked.round_runs([asked.target], 0, 8))
    run = repository.experiment(id).runs[0].id
    repository.fail_run(run, "It failed.")
    (home / "runs").mkdir()
    held = system.acquire(home / "runs" / f"{id}.lock")
    assert held is not None
    held.write_metadata(pid=4711)
    assert f"Another process (4711) is working on the experiment {id}" in refused(call, id)
    assert repository.run(run).status == "failed"
    held.close()


@pytest.mark.usefixtures("without_mlflow")
def test_what_the_worker_has_is_left_to_it(call: Call, repository: Repository) -> None:
    id = repository.create_experiment(sweep())
    for asked in (id, repository.experiment(id).runs[1].id):
        assert f"The experiment {id}" in (told := refused(call, asked))
        assert "belongs to the worker, which continues it by itself" in told


@pytest.mark.usefixtures("without_mlflow")
def test_what_failed_or_was_cancelled_goes_on(call: Call, toy: str, repository: Repository) -> None:
    id = repository.create_experiment(sweep().model_copy(update={"pair": toy}), enqueue=False)
    first, second, third = (run.id for run in repository.experiment(id).runs)
    repository.record_generation(first, generation(0, "as it was"))
    repository.record_generation(first, generation(1, "", outcome="failed"))
    repository.finish_run(first, {"failed": 1})
    repository.record_generation(second, generation(0, "as it was"))
    repository.fail_run(second, "The weights are missing.", {"n": 1})
    repository.cancel_run(third)
    assert call("resume", id)[0] == 0
    done = repository.experiment(id)
    assert [(run.status, run.prompts_done, run.error) for run in done.runs] == [("finished", 2, None)] * 3
    for run in (first, second):
        kept, again = repository.generations(run)
        assert (kept.text, again.outcome != "failed") == ("as it was", True)
    assert "is finished, and none of its prompts failed" in refused(call, id)


@pytest.mark.usefixtures("without_mlflow")
def test_what_failed_at_the_worker_is_queued_for_it_again(call: Call, repository: Repository) -> None:
    id = repository.create_experiment(sweep())
    job = repository.claim(("experiment",), 60)
    assert job is not None
    assert job.claim_token is not None
    repository.finish_job(id, job.claim_token, "failed", "The worker was lost.")
    assert repository.experiment(id).status == "failed"
    status, out, err = call("resume", id)
    assert (status, out) == (0, f"The experiment {id} is queued for the worker again.\n")
    assert "No worker is running" in err
    assert {run.status for run in repository.experiment(id).runs} == {"queued"}
    assert (repository.job(id).status, repository.job(id).error) == ("queued", None)


@pytest.mark.usefixtures("without_mlflow")
@pytest.mark.wide
def test_one_run_of_an_experiment_can_be_resumed(call: Call, home: Path, toy: str, repository: Repository) -> None:
    config = sweep().model_copy(update={"pair": toy})
    id = repository.create_experiment(config, enqueue=False)
    first, second, third = repository.experiment(id).runs
    status, out, _ = call("resume", second.id[:12])
    assert (status, out.splitlines()[-1]) == (0, f"Run {second.id}")
    assert [run.status for run in repository.experiment(id).runs] == ["queued", "finished", "queued"]
    status, out, _ = call("resume", id[:12])
    assert (status, out.splitlines()[-1]) == (0, f"Experiment {id}")
    assert {run.status for run in repository.runs([first.id, second.id, third.id])} == {"finished"}


@pytest.mark.usefixtures("without_mlflow")
def test_ids_that_mean_nothing_or_too_much(call: Call, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "There is no run and no experiment 'abcdef'" in refused(call, "ABCDEF")
    ids = iter(["abcdef0", "abcdef1"])
    monkeypatch.setattr("fsd_core.storage.runs.new_id", lambda: next(ids))
    first, _ = (repository.create_run(run_config(seed=seed)) for seed in range(2))
    assert "Several ids begin with 'abcdef'" in refused(call, "abcdef")
    repository.finish_run(first, {})
    assert "The run abcdef0 is finished" in refused(call, "abcdef0")


@pytest.mark.usefixtures("without_mlflow")
def test_a_database_that_fails_under_way_is_told_with_the_command(
    call: Call, home: Path, toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise DatabaseUnavailable("The disk is full.")

    monkeypatch.setattr("fsd_core.evaluation.runner.execute_runs", fails)
    status, _, err = call("run", "--pair", toy, "--limit", "2")
    resume = f"continue later with `python -m fsd_core resume {runs_of(home)[0].id}`."
    assert (status, err) == (2, f"error: The disk is full. Finished prompts are kept: {resume}\n")


@pytest.mark.usefixtures("without_mlflow")
@pytest.mark.wide
def test_only_the_very_same_content_goes_on(call: Call, home: Path, toy: str, repository: Repository) -> None:
    def start(*more: str) -> str:
        status, out, _ = call("run", "--pair", toy, "--limit", "2", "--max-new-tokens", "8", "--json", *more)
        assert status == 0
        return json.loads(out)["run_id"]

    first = start()
    unfinished = repository.create_run(repository.run(first).config)
    assert start("--seed", "1") != unfinished
    assert start("--fresh") != unfinished
    (home / "runs").mkdir(exist_ok=True)
    held = system.acquire(home / "runs" / f"{unfinished}.lock")
    assert held is not None
    held.write_metadata(pid=4711)
    assert start() != unfinished  # another process is at work on it
    held.close()
    assert repository.run(unfinished).status == "queued"
    assert start() == unfinished
    assert start() != unfinished  # it has ended


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
