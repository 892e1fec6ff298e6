"""The queue of jobs: each is done by one worker, shared if it may be, and watched from the pages."""

from __future__ import annotations

import json
import sqlite3
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import pytest
from sqlalchemy import update

from dashboard.experiments.experiments_page import experiments_html
from dashboard.ui.components import perform
from fsd_core import system
from fsd_core.config import DecodingConfig, SweepConfig
from fsd_core.config.calibration_config import CalibrationConfig, candidates
from fsd_core.errors import Malformed, Misconfigured, NotApplicable, UnknownName, WorkerRunning, WrongState
from fsd_core.roles import LOCAL
from fsd_core.storage.messages import ExperimentJob, ExperimentRunJob, PlaygroundJob
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import JobRow, WorkerRow
from fsd_core.worker.run_actions import exclusive_writing, stop_abandoned
from fsd_core.worker.sharing import check_unique, check_worker_name
from tests.tools.tracking_examples import chunk, generation, playground_job, run_config, sweep

LEASE, OVER = 3600.0, -1.0
"""seconds: a lease that no pause of the machine ends, and one that has ended"""


def claim_all(url: str) -> list[str]:
    """What one worker gets of the queue."""
    repository, claimed = Repository(open_database(url)), []
    while job := repository.claim(("playground",), LEASE):
        claimed.append(job.id)
    return claimed


def claim_at_once(repository: Repository, url: str, workers: int = 2) -> None:
    """Real processes empty the queue; fails if a job was claimed twice or left."""
    ids = sorted(repository.enqueue(playground_job()) for _ in range(30))
    with get_context("spawn").Pool(workers) as pool:
        claimed = [id for ids in pool.map(claim_all, [url] * workers, chunksize=1) for id in ids]
    assert sorted(claimed) == ids
    assert {repository.job(id).attempts for id in ids} == {1}


@pytest.mark.wide
def test_each_job_is_claimed_once(repository: Repository, database_url: str) -> None:
    claim_at_once(repository, database_url)


def test_people_go_first_then_the_oldest(repository: Repository) -> None:
    first = repository.enqueue(ExperimentJob("first"))
    second = repository.enqueue(ExperimentJob("second"))
    person = repository.enqueue(playground_job("x\0y"), priority=10)
    claimed = [repository.claim(("experiment", "playground"), LEASE) for _ in range(4)]
    assert [job and job.id for job in claimed] == [person, first, second, None]
    assert PlaygroundJob.read(claimed[0].payload) == playground_job("x\ufffdy")


def test_a_lost_worker_is_counted_and_its_token_is_worth_nothing(repository: Repository) -> None:
    id = repository.create_experiment(sweep())
    lost = repository.claim(("experiment",), OVER)
    taken = repository.claim(("experiment",), LEASE)
    assert (taken.id, taken.attempts, taken.lost_workers, taken.started_at) == (id, 2, 1, lost.started_at)
    assert not repository.heartbeat(id, lost.claim_token, LEASE)
    assert not repository.finish_job(id, lost.claim_token, "failed", "from the grave")
    assert repository.job(id).status == "running"
    assert {run.status for run in repository.experiment(id).runs} == {"queued"}
    assert repository.heartbeat(id, taken.claim_token, LEASE)
    assert repository.finish_job(id, taken.claim_token, "finished")
    assert not repository.heartbeat(id, taken.claim_token, LEASE)


def test_progress_forgives_lost_workers(repository: Repository) -> None:
    id = repository.create_experiment(sweep())
    run_id = repository.experiment(id).runs[0].id

    def lost() -> int:
        """A worker claims the job and dies over it; how many in a row have by now."""
        repository.claim(("experiment",), OVER)
        return repository.claim(("experiment",), OVER).stalled

    assert lost() == 1
    repository.record_generation(run_id, generation(0))
    assert [lost(), lost()] == [1, 3]  # the first of them had something to show
    repository.record_generation(run_id, generation(1))
    assert repository.claim(("experiment",), OVER).stalled == 0
    assert repository.job(id).lost_workers == 6


def test_a_dead_worker_gives_back_what_it_held_before_its_lease_ends(repository: Repository) -> None:
    id = repository.create_experiment(sweep())
    first, second, _ = repository.experiment(id).runs
    dead = repository.claim(("experiment",), LEASE)
    repository.worker_lost({id: "another token", "gone": "x"}, {})
    assert repository.claim(("experiment",), LEASE) is None
    repository.worker_lost({id: dead.claim_token}, {first.id: [1], "gone": [0]})
    taken = repository.claim(("experiment",), LEASE)
    assert (taken.id, taken.attempts, taken.lost_workers, taken.stalled) == (id, 2, 1, 0)  # the prompt is to blame
    repository.worker_lost({id: taken.claim_token}, {first.id: [1], second.id: [0, 1]})
    assert [run.losses for run in repository.experiment(id).runs] == [{1: 2}, {0: 1, 1: 1}, {}]
    repository.record_generation(first.id, generation(1))
    assert repository.run(first.id).losses == {}
    taken = repository.claim(("experiment",), LEASE)
    repository.worker_lost({id: taken.claim_token}, {})
    taken = repository.claim(("experiment",), LEASE)
    repository.worker_lost({id: taken.claim_token}, {})
    assert repository.job(id).stalled == 1


def test_what_ended_is_queued_again_for_what_is_left_of_it(repository: Repository) -> None:
    id = repository.create_experiment(sweep())
    first, second, third = (run.id for run in repository.experiment(id).runs)
    job = repository.claim(("experiment",), LEASE)
    with pytest.raises(WrongState):
        repository.reopen_runs([first])
    repository.record_generation(first, generation(0))
    repository.record_generation(first, generation(1, outcome="failed"))
    repository.finish_run(first, {"n": 2})
    repository.record_generation(second, generation(0))
    repository.record_generation(second, generation(1))
    repository.finish_run(second, {"n": 2})
    repository.fail_run(third, "No such pair.", {"n": 0})
    repository.finish_job(id, job.claim_token, "failed", "No such pair.")
    assert repository.run(third).metrics == {"n": 0}
    assert repository.reopen_runs([first, second, third]) == [first, third]
    runs = repository.experiment(id).runs
    assert [(r.status, r.prompts_done, r.decoding_seconds, r.metrics, r.error) for r in runs] == [
        ("queued", 1, 0.5, None, None), ("finished", 2, 1.0, {"n": 2}, None), ("queued", 0, 0.0, None, None),
    ]  # fmt: skip
    again = repository.claim(("experiment",), LEASE)
    assert (again.id, again.error, again.stalled) == (id, None, 0)
    repository.finish_job(id, again.claim_token, "finished")
    with pytest.raises(WrongState):
        repository.reopen_runs([second])
    with pytest.raises(UnknownName):
        repository.reopen_runs([first, "gone"])


def test_a_run_alone_is_queued_as_a_job_of_its_own(repository: Repository) -> None:
    run_id = repository.create_run(run_config())
    repository.fail_run(run_id, "No such pair.")
    repository.reopen_runs([run_id])
    job = repository.claim(("run",), LEASE)
    assert (job.id, job.payload) == (run_id, {"run_id": run_id})
    repository.finish_job(run_id, job.claim_token, "cancelled")
    assert repository.run(run_id).status == "cancelled"
    repository.reopen_runs([run_id], enqueue=False)
    assert (repository.run(run_id).status, repository.job(run_id).status) == ("queued", "cancelled")


def test_a_heartbeat_keeps_the_job(repository: Repository) -> None:
    repository.enqueue(playground_job())
    job = repository.claim(("playground",), OVER)
    assert repository.heartbeat(job.id, job.claim_token, LEASE)
    assert repository.claim(("playground",), LEASE) is None


def test_cancelling(repository: Repository) -> None:
    waiting = repository.create_experiment(sweep())
    repository.request_cancel(waiting)
    assert repository.experiment(waiting).status == "cancelled"
    assert {run.status for run in repository.experiment(waiting).runs} == {"cancelled"}
    begun = repository.create_experiment(sweep())
    repository.record_generation(repository.experiment(begun).runs[0].id, generation())
    repository.request_cancel(begun)  # the worker writes the figures of what is done
    assert (repository.job(begun).status, repository.job(begun).cancel_requested) == ("queued", True)
    job = repository.claim(("experiment",), LEASE)
    assert repository.finish_job(begun, job.claim_token, "cancelled")
    running = repository.create_experiment(sweep())
    job = repository.claim(("experiment",), LEASE)
    assert job.id == running
    assert not repository.cancel_requested(running)
    repository.request_cancel(running)
    assert repository.cancel_requested(running)
    assert repository.experiment(running).status == "running"
    assert repository.finish_job(running, job.claim_token, "cancelled")
    assert {run.status for run in repository.experiment(running).runs} == {"cancelled"}


def test_a_failed_job_leaves_no_run_open(repository: Repository) -> None:
    id = repository.create_experiment(sweep())
    job = repository.claim(("experiment",), LEASE)
    repository.finish_job(id, job.claim_token, "failed", "No such pair.")
    assert {(run.status, run.error) for run in repository.experiment(id).runs} == {("failed", "No such pair.")}


def test_streams_are_read_from_where_one_was(repository: Repository) -> None:
    id = repository.enqueue(playground_job())
    repository.append_chunks(id, [chunk(1), chunk(2)])
    repository.append_chunks(id, [chunk(3)])
    repository.append_chunks(id, [])
    assert repository.chunks(id, -1) == [(0, chunk(1)), (1, chunk(2)), (2, chunk(3))]
    assert repository.chunks(id, 1) == [(2, chunk(3))]
    assert repository.prune_playground(timedelta(0)) == 0  # it has not ended
    repository.request_cancel(id)
    assert repository.prune_playground(timedelta(hours=1)) == 0
    assert repository.prune_playground(timedelta(0)) == 1
    assert repository.chunks(id, -1) == []
    with pytest.raises(UnknownName):
        repository.job(id)


def test_the_worker_is_seen(repository: Repository) -> None:
    assert repository.worker() is None
    repository.report_worker(7, "host", "cpu", "idle")
    first = repository.worker()
    repository.report_worker(7, "host", "cpu", "run 1")
    second = repository.worker()
    assert (second.alive, second.activity, second.started_at) == (True, "run 1", first.started_at)
    for hours in (-1, 1):  # later, or by a clock that was set back since
        with repository._database.session() as session:
            session.execute(update(WorkerRow).values(heartbeat_at=datetime.now(UTC) + timedelta(hours=hours)))
        assert not repository.worker().alive
    repository.report_worker(8, "host", "cpu", "idle")
    assert repository.worker().started_at > first.started_at


def test_a_calibration_is_given_time_once_it_has_ended(repository: Repository) -> None:
    decodings = tuple(candidates({"acceptance": "ensemble", "draft_length": 5}))
    asked = CalibrationConfig(decodings=decodings, limit=400)
    id = repository.create_experiment(asked)
    with pytest.raises(WrongState):
        repository.grant_minutes(id, 3)
    job = repository.claim(("experiment",), LEASE)
    repository.finish_job(id, job.claim_token, "failed", "No such pair.")
    repository.grant_minutes(id, 3)
    assert repository.experiment(id).config == asked.model_copy(update={"more_minutes": 3.0})
    again = repository.claim(("experiment",), LEASE)
    assert (again.id, again.error) == (id, None)
    repository.finish_job(id, again.claim_token, "finished")
    repository.grant_minutes(id, 2, enqueue=False)
    assert repository.claim(("experiment",), LEASE) is None
    assert repository.experiment(id).config.all_minutes == asked.minutes + 5
    with pytest.raises(NotApplicable):
        repository.grant_minutes(repository.create_experiment(sweep()), 1)
    with pytest.raises(UnknownName):
        repository.grant_minutes("gone", 1)


RUNS = (ExperimentRunJob.kind,)


def shared(repository: Repository) -> tuple[str, list[str]]:
    """An experiment that a worker has just shared, and its runs."""
    id = repository.create_experiment(sweep())
    job = claimed(repository, ("experiment",))
    assert repository.share_experiment(job.id, str(job.claim_token))
    return id, [run.id for run in repository.experiment(id).runs]


def claimed(repository: Repository, kinds: tuple[str, ...], lease: float = LEASE) -> JobRow:
    job = repository.claim(kinds, lease)
    assert job is not None
    return job


def test_each_run_is_a_job_until_the_last_has_ended(repository: Repository) -> None:
    id, runs = shared(repository)
    assert repository.experiment(id).status == "running"
    assert repository.waiting_run_jobs() == runs
    assert repository.claim(("experiment",), LEASE) is None
    assert repository.claim(RUNS, LEASE, only="other") is None
    jobs = [claimed(repository, RUNS) for _ in runs]
    assert [job.id for job in jobs] == runs  # in their order
    for job in jobs[:2]:
        assert repository.finish_job(job.id, str(job.claim_token), "finished")
    assert repository.claim(("experiment",), LEASE) is None
    assert repository.finish_job(jobs[2].id, str(jobs[2].claim_token), "failed", "It broke.")
    last = repository.experiment(id).runs[2]
    assert (last.status, last.error) == ("failed", "It broke.")
    end = claimed(repository, ("experiment",))
    assert not repository.share_experiment(end.id, str(end.claim_token))  # each has had its job
    assert repository.finish_job(end.id, str(end.claim_token), "finished")
    assert repository.job(id).lost_workers == 0


def test_a_lost_claim_shares_nothing(repository: Repository) -> None:
    id = repository.create_experiment(sweep())
    lost = claimed(repository, ("experiment",), OVER)
    taken = claimed(repository, ("experiment",))
    assert not repository.share_experiment(id, str(lost.claim_token))
    assert repository.waiting_run_jobs() == []
    repository.request_cancel(id)
    assert not repository.share_experiment(id, str(taken.claim_token))


def test_a_run_whose_worker_dies_waits_for_another(repository: Repository) -> None:
    _, (first, *_) = shared(repository)
    dead = claimed(repository, RUNS, OVER)
    repository.start_run(first, {})
    repository.record_generation(first, generation(0))
    heir = claimed(repository, RUNS)
    assert (dead.id, heir.id, heir.lost_workers, heir.stalled) == (first, first, 1, 0)
    assert not repository.heartbeat(first, str(dead.claim_token), LEASE)
    assert repository.finish_job(first, str(heir.claim_token), "queued")
    assert repository.run(first).status == "queued"


def test_cancelling_reaches_every_job(repository: Repository) -> None:
    id, (first, second, third) = shared(repository)
    at_work = claimed(repository, RUNS)
    begun = claimed(repository, RUNS)
    repository.record_generation(second, generation(0))
    assert repository.finish_job(begun.id, str(begun.claim_token), "queued")
    repository.request_cancel(id)
    assert repository.cancel_requested(first)
    assert repository.run(third).status == "cancelled"
    assert repository.waiting_run_jobs() == [first, second]  # a worker records what is done of these
    for job in (at_work, claimed(repository, RUNS)):
        assert repository.finish_job(job.id, str(job.claim_token), "cancelled")
    assert {run.status for run in repository.experiment(id).runs} == {"cancelled"}
    assert repository.experiment(id).cancel_requested
    assert claimed(repository, ("experiment",)).id == id


def test_cancelled_before_anybody_began_it_ends_at_once(repository: Repository) -> None:
    id, runs = shared(repository)
    repository.request_cancel(id)
    assert repository.experiment(id).status == "cancelled"
    repository.reopen_runs(runs)  # the former jobs are gone, so that workers may share it again
    again = claimed(repository, ("experiment",))
    assert repository.share_experiment(id, str(again.claim_token))
    assert repository.waiting_run_jobs() == runs
    with pytest.raises(WrongState):
        repository.delete_run(runs[0])


def test_workers_are_told_apart_by_their_names(repository: Repository) -> None:
    repository.report_worker(1, "elsewhere", "cpu", "idle")
    repository.report_worker(2, "elsewhere", "cuda", "SD: prompt 1 of 2", 8, "gpu-1")
    assert [(worker.name, worker.pid, worker.memory) for worker in repository.workers()] == [
        ("", 1, None), ("gpu-1", 2, 8)
    ]  # fmt: skip
    told = repository.worker()
    assert told is not None
    assert told.pid == 1
    with pytest.raises(WorkerRunning, match="elsewhere"):
        check_unique("gpu-1", repository.workers())
    check_unique("gpu-2", repository.workers())
    repository.prune_workers(timedelta(hours=1))
    assert len(repository.workers()) == 2
    repository.prune_workers(timedelta(seconds=-1))
    assert [worker.name for worker in repository.workers()] == [""]
    check_unique("gpu-1", repository.workers())


@pytest.mark.parametrize("name", ["home", "GPU", "-a", "a" * 41, "a/b", "ä"])
def test_names_that_no_worker_can_have(name: str) -> None:
    with pytest.raises(Malformed):
        check_worker_name(name, "postgresql://host/name")


def test_several_workers_need_a_server() -> None:
    check_worker_name("gpu-1", "postgresql://host/name")
    with pytest.raises(Misconfigured):
        check_worker_name("gpu-1", "sqlite:///lab.db")


def test_what_a_process_left_is_stopped_and_can_be_gone_on_with_or_deleted(repository: Repository, home: Path) -> None:
    id = repository.create_experiment(SweepConfig(name="Alone", decodings=(DecodingConfig(),)), enqueue=False)
    repository.start_run(repository.experiment(id).runs[0].id, {})

    def card() -> tuple[str, str]:
        stop_abandoned(repository, home)
        seen = repository.experiment(id)
        return seen.status, experiments_html([seen], {})

    status, html = card()  # of a process elsewhere, as far as anybody knows
    assert status == "running"
    assert 'data-act="resume"' not in html
    with exclusive_writing(repository, home, "experiment", id):
        assert card()[0] == "running"
    (home / "runs" / f"{id}.lock").touch()  # as a kill leaves it
    status, html = card()
    assert status == "stopped"
    assert [run.id for run in repository.runs(status="stopped")] == [repository.experiment(id).runs[0].id]
    for act in ("resume", "archive", "delete"):
        assert f'data-act="{act}"' in html
    assert perform(repository, home, LOCAL, "resume", "experiment", id) == "Alone continues at its next prompt."
    assert card()[0] == "queued"
    assert system.holder(home / "runs" / f"{id}.lock") is None


def abandoned(repository: Repository, home: Path) -> str:
    """An experiment as a command that was killed leaves it."""
    id = repository.create_experiment(SweepConfig(name="Alone", decodings=(DecodingConfig(),)), enqueue=False)
    repository.start_run(repository.experiment(id).runs[0].id, {})
    (home / "runs").mkdir(exist_ok=True)
    (home / "runs" / f"{id}.lock").touch()
    return id


def test_what_a_process_takes_while_another_looks_is_not_stopped(
    repository: Repository, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, look = abandoned(repository, home), repository.under_way_without_job
    with ExitStack() as process:

        def and_begun(owners: list[str]) -> list[str]:
            found = look(owners)
            process.enter_context(exclusive_writing(repository, home, "experiment", id))
            return found

        monkeypatch.setattr(repository, "under_way_without_job", and_begun)
        stop_abandoned(repository, home)
        assert repository.experiment(id).status == "running"


def test_what_was_resumed_while_another_looks_stays_queued(
    repository: Repository, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, look = abandoned(repository, home), repository.under_way_without_job

    def and_resumed(owners: list[str]) -> list[str]:
        found = look(owners)
        if found:
            perform(repository, home, LOCAL, "resume", "experiment", id)
        return found

    monkeypatch.setattr(repository, "under_way_without_job", and_resumed)
    stop_abandoned(repository, home)
    assert "stopped" not in {run.status for run in repository.experiment(id).runs}


def test_what_another_home_goes_on_with_is_stopped_once_at_most(repository: Repository, home: Path) -> None:
    id = abandoned(repository, home)
    (run,) = repository.experiment(id).runs
    (home / "runs" / f"{id}.lock").write_text(json.dumps({"pid": 1, "prompts": {run.id: [2]}}))
    stop_abandoned(repository, home)
    (run,) = repository.experiment(id).runs
    assert (run.status, run.losses) == ("stopped", {2: 1})
    other = home / "other"
    other.mkdir()
    with exclusive_writing(repository, other, "experiment", id):
        repository.start_run(run.id, {})
        stop_abandoned(repository, home)
        assert repository.experiment(id).status == "running"


def test_a_lock_that_cannot_be_read_keeps_no_other_from_being_stopped(repository: Repository, home: Path) -> None:
    id = abandoned(repository, home)
    (home / "runs" / "0.lock").symlink_to("0.lock")
    stop_abandoned(repository, home)
    assert repository.experiment(id).status == "stopped"


def test_a_database_that_another_process_holds_is_read_all_the_same(home: Path) -> None:
    url = f"sqlite:///{home / 'held.db'}"
    upgrade(url)
    with closing(open_database(url, busy_timeout=0.1)) as database:
        repository = Repository(database)
        id = abandoned(repository, home)
        with closing(sqlite3.connect(home / "held.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            stop_abandoned(repository, home)
            assert repository.experiment(id).status == "running"
        stop_abandoned(repository, home)
        assert repository.experiment(id).status == "stopped"
