"""An experiment that workers share: the queue's part, which is the same on every database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fsd_core.errors import Malformed, Misconfigured, WorkerRunning, WrongState
from fsd_core.storage.messages import ExperimentRunJob
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import JobRow
from fsd_core.worker.sharing import check_unique, check_worker_name
from tests.tools.tracking_examples import generation, sweep

LEASE, OVER = 3600.0, -1.0
"""seconds: a lease that no pause of the machine ends, and one that has ended"""
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
