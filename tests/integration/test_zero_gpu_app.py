"""The app on a ZeroGPU Space, as far as one can be imitated: ``app.py`` with a ``spaces`` that really forks."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsd_core.config import Autoregressive, DecodingConfig, Speculative
from fsd_core.metrics import EXECUTOR, SHARED_EXECUTOR
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.repository import Repository
from tests.tools.sizes import PATIENCE
from tests.tools.worker_process import free_port, until
from tests.tools.zero_gpu.app_process import Space, small

pytestmark = pytest.mark.processes

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
