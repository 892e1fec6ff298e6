"""Runs of an experiment as tasks of a real Ray cluster of two nodes, one of which dies (``make test-ray``).

Ray is in an environment of its own, so no other command collects this.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from fsd_core.config import Fuzzy, SweepConfig
from fsd_core.evaluation.runner import execute_runs
from fsd_core.models.loading import load_pair
from fsd_core.storage.records import RunView
from tests.integration.test_many_workers import assert_same_figures
from tests.tools.worker_process import Home, until

cluster_utils = pytest.importorskip("ray.cluster_utils")

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

PROMPTS, PATIENT = 6, 1500.0
NODE = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": 80_000_000}
"""a GPU that Ray believes in, so that it gives each node one run at a time"""


@pytest.fixture
def home(tmp_path: Path, postgres_url: str) -> Iterator[Home]:
    name = f"ray_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    home = Home(tmp_path, database_url=f"{postgres_url.rpartition('/')[0]}/{name}")
    yield home
    home.close()


@pytest.fixture
def cluster() -> Iterator[Any]:
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


def six_settings(home: Home) -> SweepConfig:
    sweep = home.sweep(PROMPTS)
    more = [
        sweep.decodings[2].model_copy(update={"acceptance": Fuzzy(threshold=value)}) for value in (0.3, 0.4, 0.6)
    ]  # fmt: skip
    return sweep.model_copy(update={"decodings": (*sweep.decodings, *more)})


def on(node: str, run: RunView) -> bool:
    return bool(run.measurement_sessions) and run.measurement_sessions[-1].conditions["worker"] == node


@contextmanager
def held(home: Home) -> Iterator[None]:
    """Let no process record a prompt during the block."""
    with psycopg.connect(str(home.settings.database_url)) as connection:
        connection.execute("LOCK TABLE generations IN SHARE MODE")
        yield


@contextmanager
def dispatcher(home: Home, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """The worker that shares experiments and schedules their runs."""
    environment = {**home.environment, "FSD_EXECUTOR": "ray", "RAY_ADDRESS": address}
    output = home.settings.home / "dispatcher.out"
    command = [sys.executable, "-m", "fsd_core", "worker"]
    with output.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        print(output.read_text())


def test_a_node_dies_and_the_result_is_that_of_an_undisturbed_one(home: Home, cluster: Any) -> None:
    undisturbed = home.repository.create_experiment(six_settings(home), enqueue=False)
    execute_runs(home.repository, [run.id for run in home.repository.experiment(undisturbed).runs], load_pair)

    doomed = cluster.add_node(**NODE)
    node = f"ray-{doomed.node_id[:8]}"
    experiment = home.repository.create_experiment(six_settings(home))

    def at_work() -> list[RunView]:
        runs = home.repository.experiment(experiment).runs
        return [run for run in runs if on(node, run) and 0 < run.prompts_done < PROMPTS]

    with dispatcher(home, cluster.address) as process:
        killed: RunView | None = None
        while killed is None:
            until(at_work, "a prompt of the node", PATIENT)
            with held(home):  # in the midst of a run, however long this process pauses
                if runs := at_work():
                    killed = runs[0]
                    cluster.remove_node(doomed, allow_graceful=False)
        assert home.until_done(home.job_of(experiment), PATIENT) == "finished"
        process.terminate()
        assert process.wait(60) == 0

    assert home.written(experiment) == home.written(undisturbed)  # which fails on a prompt that was recorded twice
    assert len(home.written(experiment)) == 6 * PROMPTS
    assert_same_figures(home, experiment, undisturbed)
    runs = home.repository.experiment(experiment).runs
    assert {run.status for run in runs} == {"finished"}
    assert home.repository.job(killed.id).lost_workers >= 1
    workers = {run.id: [one.conditions["worker"] for one in run.measurement_sessions] for run in runs}
    assert workers[killed.id][0] == node
    assert len(workers[killed.id]) == 2
    assert len({name for names in workers.values() for name in names}) == 2
