"""The app on a ZeroGPU Space, as far as one can be imitated: ``app.py`` with a ``spaces`` that really forks."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsd_core.conditions import EXECUTOR, SHARED_EXECUTOR
from fsd_core.config import Autoregressive, DecodingConfig, Speculative
from fsd_core.tracking.database.repository import Repository
from fsd_core.tracking.messages import PlaygroundJob
from tests.tools.worker_process import free_port, until
from tests.tools.zero_gpu.app_process import Space, small

ENDED = ("finished", "failed", "cancelled")


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Space]:
    space = Space(tmp_path, free_port(8300))
    yield space
    space.kill()


def done(repository: Repository, job: str, timeout: float = 120.0) -> str:
    until(lambda: repository.job(job).status in ENDED, f"the end of {job}", timeout)
    return repository.job(job).status


def texts(repository: Repository, experiment: str) -> dict[tuple[str, int], str]:
    return {
        (run.setting_id, generation.position): generation.text
        for run in repository.experiment(experiment).runs
        for generation in repository.generations(run.id)
    }


def test_a_text_and_an_experiment_are_written_by_a_forked_process_and_marked(space: Space) -> None:
    space.start()
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

    experiment = repository.create_experiment(small(6))
    job_id = repository.experiment(experiment).job_id
    assert job_id is not None
    assert done(repository, job_id) == "finished"
    assert len(texts(repository, experiment)) == 18
    for run in repository.experiment(experiment).runs:
        assert run.metrics is not None
        assert run.metrics["n"] == 6
        assert run.speed_mixed == (SHARED_EXECUTOR,)
        assert [sitting.conditions[EXECUTOR] for sitting in run.sittings] == ["ZeroGPU"]
    ids = ",".join(run.id for run in repository.experiment(experiment).runs)
    with urllib.request.urlopen(f"{space.url}/export/comparison.csv?runs={ids}", timeout=60) as answer:
        header, *rows = answer.read().decode().splitlines()
    assert "speed_mixed" in header
    assert all(SHARED_EXECUTOR in row for row in rows)
    assert len(rows) == 3

    assert {call["call"] for call in space.calls} == {"Speak", "Describe", "Slice"}
    assert {call["parent"] for call in space.calls} == {process.pid}
    assert process.pid not in {call["pid"] for call in space.calls}
    assert {call["duration"] for call in space.calls} == {10}
    worker = repository.worker()
    assert worker is not None
    assert (worker.pid, worker.device) == (process.pid, "ZeroGPU")
    assert space.stop() == 0


def test_an_app_that_is_killed_goes_on_where_it_was(space: Space) -> None:
    space.start()
    repository = space.repository
    experiment = repository.create_experiment(small(12))
    job_id = repository.experiment(experiment).job_id
    assert job_id is not None
    until(lambda: repository.experiment(experiment).prompts_done >= 4, "four prompts")
    space.kill()
    before = texts(repository, experiment)
    assert 4 <= len(before) < 36
    space.start()
    assert done(repository, job_id) == "finished"
    assert repository.job(job_id).lost_workers == 1
    after = texts(repository, experiment)
    assert len(after) == 36
    assert {key: after[key] for key in before} == before

    undisturbed = repository.create_experiment(small(12, "undisturbed"))
    assert done(repository, undisturbed) == "finished"
    assert texts(repository, undisturbed) == after


def test_a_gpu_that_is_taken_back_or_not_lent_loses_nothing(space: Space) -> None:
    (space.folder / "abort").write_text("5")
    space.start()
    repository = space.repository
    aborted = repository.create_experiment(small(6))
    assert done(repository, aborted) == "finished"
    assert not (space.folder / "abort").exists()
    assert len(texts(repository, aborted)) == 18
    assert len({call["pid"] for call in space.calls if call["call"] == "Slice"}) == 2

    (space.folder / "abort").write_text("4")
    cut = repository.create_experiment(small(40, "cut"))
    until(lambda: repository.experiment(cut).prompts_done >= 2, "two prompts")
    (space.folder / "refuse").write_text("You have exceeded your free ZeroGPU quota (10s requested vs. 3s left).")
    assert done(repository, cut) == "failed"
    job = repository.job(cut)
    assert job.error is not None
    assert "exceeded your free ZeroGPU quota" in job.error
    kept = texts(repository, cut)
    assert 0 < len(kept) < 120
    assert all(run.error == job.error for run in repository.experiment(cut).runs)
    assert all(g.outcome != "failed" for run in repository.experiment(cut).runs for g in repository.generations(run.id))

    (space.folder / "refuse").unlink()
    repository.reopen_runs([run.id for run in repository.experiment(cut).runs])
    until(lambda: repository.experiment(cut).prompts_done > len(kept), "it to go on")
    assert {key: text for key, text in texts(repository, cut).items() if key in kept} == kept
    repository.request_cancel(cut)
    assert done(repository, cut) == "cancelled"
    ended = len(texts(repository, cut))
    time.sleep(1)
    assert len(texts(repository, cut)) == ended < 120
    job = repository.enqueue(PlaygroundJob.of("bundled", "1 + 1?", 1, [DecodingConfig(max_new_tokens=8)]), priority=10)
    assert done(repository, job) == "finished"


def test_the_playground_does_not_wait_for_an_experiment_and_stops_when_asked(space: Space) -> None:
    space.start()
    repository = space.repository
    experiment = repository.create_experiment(small(60))
    until(lambda: repository.experiment(experiment).prompts_done >= 1, "a prompt")
    job = repository.enqueue(PlaygroundJob.of("bundled", "1 + 1?", 1, [DecodingConfig(max_new_tokens=8)]), priority=10)
    assert done(repository, job) == "finished"
    assert repository.job(experiment).status == "running"
    assert space.stop() == 0
    assert repository.job(experiment).status == "queued"
    assert repository.job(experiment).lost_workers == 0
