"""The same on PostgreSQL, where it could differ."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from tracking_examples import STEP, generation, run_config, sweep

from fsd_core.errors import DatabaseOutdated, DatabaseUnavailable
from fsd_core.tracking.database.models import Base
from fsd_core.tracking.database.repository import Repository
from fsd_core.tracking.database.session import open_database, upgrade

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from test_repository_jobs import claim_at_once


@pytest.fixture
def lab_url(postgres_url: str, request: pytest.FixtureRequest) -> str:
    """An empty database of the test's own."""
    name = request.node.name.replace("test_", "lab_")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return postgres_url.rpartition("/")[0] + f"/{name}"


@pytest.fixture
def postgres(lab_url: str) -> Iterator[Repository]:
    upgrade(lab_url)
    database = open_database(lab_url)
    yield Repository(database)
    database.close()


def test_each_job_is_claimed_once(postgres: Repository, lab_url: str) -> None:
    claim_at_once(postgres, lab_url)


def test_migrations(lab_url: str) -> None:
    with pytest.raises(DatabaseOutdated, match="There is no FSD Lab database"):
        open_database(lab_url)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(upgrade, [lab_url] * 2))
    database = open_database(lab_url)
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    database.close()


def test_an_experiment_from_start_to_end(postgres: Repository) -> None:
    id = postgres.create_experiment(sweep("<b>&\0"))
    job = postgres.claim(("experiment",), 60)
    for run in postgres.experiment(id).runs:
        postgres.start_run(run.id, {"device": "cpu"})
        with ThreadPoolExecutor(4) as pool:  # two recorders of one prompt take turns
            list(pool.map(lambda i, run=run: postgres.record_generation(run.id, generation(i % 2, "a\0b")), range(8)))
        postgres.finish_run(run.id, {"accuracy": run.position / 2, "speed": float("inf")})
    assert postgres.finish_job(id, job.claim_token, "finished")
    found = postgres.experiment(id)
    assert (found.name, found.status, found.prompts_done) == ("<b>&\ufffd", "finished", 6)
    assert [run.metrics["accuracy"] for run in postgres.runs(order_by="accuracy")] == [1.0, 0.5, 0.0]
    assert postgres.count_runs(search="fsd js") == 2
    assert list(postgres.traces(found.runs[0].id)) == [(0, [STEP]), (1, [STEP])]
    assert found.created_at.utcoffset().total_seconds() == 0


def test_a_lost_worker(postgres: Repository) -> None:
    id = postgres.enqueue("playground", {"prompt": "\0"})
    lost = postgres.claim(("playground",), -1)
    taken = postgres.claim(("playground",), 60)
    assert (taken.id, taken.lost_workers) == (id, 1)
    assert not postgres.finish_job(id, lost.claim_token, "finished")
    postgres.append_chunks(id, [{"n": 0}, {"n": 1}])
    assert postgres.chunks(id, 0) == [(1, {"n": 1})]
    postgres.report_worker(1, "host", "cpu", "idle")
    assert postgres.worker().alive


def test_what_the_server_refuses_is_told(postgres_url: str, lab_url: str, postgres: Repository) -> None:
    with pytest.raises(DatabaseUnavailable, match="does not"):
        open_database(postgres_url.rpartition("/")[0] + "/nowhere")
    with psycopg.connect(lab_url, autocommit=True) as connection:
        connection.execute("ALTER ROLE postgres SET default_transaction_read_only = on")
    reader = open_database(lab_url)
    try:
        with pytest.raises(DatabaseUnavailable, match="is read-only"):
            Repository(reader).create_run(run_config())
    finally:
        reader.close()
        with psycopg.connect(lab_url, autocommit=True, options="-c default_transaction_read_only=off") as connection:
            connection.execute("ALTER ROLE postgres RESET default_transaction_read_only")
