"""Several worker processes share the runs of an experiment on one PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from fsd_core.config import Fuzzy, SweepConfig
from fsd_core.evaluation.runner import execute_runs
from fsd_core.metrics import METRICS, differences, mixed_sentence
from fsd_core.models.loading import load_pair
from fsd_core.storage.messages import ExperimentRunJob
from tests.tools.worker_process import Home, until

pytestmark = [pytest.mark.processes, pytest.mark.wide("test_postgres.py")]

KILLED, HEIR = "old-server", "gpu-2"


@pytest.fixture
def home(tmp_path: Path, postgres_url: str) -> Iterator[Home]:
    name = f"many_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    home = Home(tmp_path, forked=True, database_url=f"{postgres_url.rpartition('/')[0]}/{name}")
    yield home
    home.close()


def five_settings(home: Home, limit: int = 4) -> SweepConfig:
    sweep = home.sweep(limit)
    more = [sweep.decodings[2].model_copy(update={"acceptance": Fuzzy(threshold=value)}) for value in (0.4, 0.6)]
    return sweep.model_copy(update={"decodings": (*sweep.decodings, *more)})


def figures(home: Home, experiment: str) -> dict[str, dict[str, float | None]]:
    """The metrics of each setting that do not depend on how fast it was."""
    steady = [metric.key for metric in METRICS.values() if not metric.timed and metric.key != "taken_share"]
    names = [*steady, *(f"{name}{end}" for name in steady for end in ("_low", "_high"))]
    names += ["n", "correct", "wrong", "truncated", "drafted", "accepted", "rounds"]
    return {
        run.setting_id: {name: (run.metrics or {}).get(name) for name in names}
        for run in home.repository.experiment(experiment).runs
    }


def assert_same_figures(home: Home, experiment: str, other: str) -> None:
    """Up to the last digits of likelihoods, which depend on the number of threads."""
    of_one, of_other = figures(home, experiment), figures(home, other)
    assert of_one.keys() == of_other.keys()
    for setting, found in of_one.items():
        known = {name: value for name, value in found.items() if value is not None}
        assert known == pytest.approx({name: v for name, v in of_other[setting].items() if v is not None}, rel=1e-4)
    compared = [found["excess_nll"] is not None for found in of_one.values()]
    assert sum(compared) == len(compared) - 1  # all but the target alone, which whoever came last had to wait for


def test_of_two_workers_one_is_killed_and_the_result_is_that_of_an_undisturbed_one(home: Home) -> None:
    undisturbed = home.repository.create_experiment(five_settings(home), enqueue=False)
    runs = [run.id for run in home.repository.experiment(undisturbed).runs]
    execute_runs(home.repository, runs, load_pair)

    shared = home.repository.create_experiment(five_settings(home))
    killed = home.held_worker(2, lease=4.0, name=KILLED)  # which has shared the runs and is in the midst of the first
    assert home.repository.experiment(shared).status == "running"
    heir = home.worker(name=HEIR)
    until(lambda: home.prompts_done(shared) == 2 + 4 * 4, "the runs of the other worker")
    first, *others = home.repository.experiment(shared).runs
    assert (first.prompts_done, first.status) == (2, "running")
    killed.kill()
    killed.wait()

    assert home.until_done(home.job_of(shared)) == "finished"
    assert home.written(shared) == home.written(undisturbed)  # which fails on a prompt that was recorded twice
    assert len(home.written(shared)) == 20
    assert_same_figures(home, shared, undisturbed)
    assert home.repository.job(first.id).lost_workers >= 1
    first, *others = home.repository.experiment(shared).runs
    assert {run.status for run in (first, *others)} == {"finished"}
    assert [session.conditions["worker"] for session in first.measurement_sessions] == [KILLED, HEIR]
    assert "worker" in first.speed_mixed
    assert "differ in worker" in mixed_sentence(first.speed_mixed)
    assert [session.conditions["worker"] for run in others for session in run.measurement_sessions] == [HEIR] * 4
    found = {difference.name: difference.values for difference in differences([first.conditions, others[0].conditions])}
    assert found["worker"] == (HEIR, KILLED)

    # It goes on with what comes, alone as well, and ends as it is asked.
    again = home.repository.create_experiment(home.sweep(1))
    assert home.until_done(home.job_of(again)) == "finished"
    heir.terminate()
    assert heir.wait(60) == 0
    assert [worker.name for worker in home.repository.workers()] == [HEIR, KILLED]


def test_a_cancelled_experiment_frees_all_workers_and_keeps_what_is_done(home: Home) -> None:
    experiment = home.repository.create_experiment(five_settings(home))
    home.held_worker(2, name=KILLED)
    home.repository.request_cancel(home.job_of(experiment))
    statuses = [run.status for run in home.repository.experiment(experiment).runs]
    assert statuses == ["running"] + ["cancelled"] * 4
    home.turnstile.allow(None)
    assert home.until_done(home.job_of(experiment)) == "cancelled"
    assert {run.status for run in home.repository.experiment(experiment).runs} == {"cancelled"}
    assert len(home.written(experiment)) == home.prompts_done(experiment) == 3
    first = home.repository.experiment(experiment).runs[0]
    assert first.metrics
    assert first.metrics["n"] == 3

    home.repository.reopen_runs([run.id for run in home.repository.experiment(experiment).runs])  # it is shared again
    assert home.until_done(home.job_of(experiment)) == "finished"
    assert len(home.written(experiment)) == 20


def test_a_name_is_that_of_one_process(home: Home) -> None:
    first = home.worker(name=HEIR)
    until(lambda: any(worker.name == HEIR and worker.alive for worker in home.repository.workers()), "the first one")
    second = home.worker(name=HEIR)
    output, _ = second.communicate(timeout=60)
    assert second.returncode != 0
    assert f"has only one named '{HEIR}'" in output
    elsewhere = home.settings.home
    home.settings = home.settings.model_copy(update={"home": elsewhere.with_name("another")})
    home.settings.make_folders()
    third = home.worker(name=HEIR)
    output, _ = third.communicate(timeout=60)
    assert third.returncode != 0
    assert f"A worker named '{HEIR}' (process {first.pid}" in output
    home.settings = home.settings.model_copy(update={"home": elsewhere})


def test_of_runs_that_end_at_the_same_moment_the_last_one_wakes_the_experiment(home: Home) -> None:
    for _ in range(10):
        experiment = home.repository.create_experiment(five_settings(home))
        job = home.repository.claim(("experiment",), 60)
        assert job is not None
        assert home.repository.share_experiment(job.id, str(job.claim_token))
        claims = [home.repository.claim((ExperimentRunJob.kind,), 60) for _ in range(5)]
        runs = [run.id for run in home.repository.experiment(experiment).runs]
        assert [claim.id for claim in claims if claim] == runs
        with ThreadPoolExecutor(5) as pool:
            ended = pool.map(lambda c: home.repository.finish_job(c.id, c.claim_token, "failed", "No."), claims)
            assert list(ended) == [True] * 5
        last = home.repository.claim(("experiment",), 60)
        assert last is not None
        assert last.id == experiment
        assert not home.repository.share_experiment(last.id, str(last.claim_token))
        assert home.repository.finish_job(last.id, str(last.claim_token), "finished")
