"""The same on PostgreSQL, where it could differ."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from tracking_examples import STEP, chunk, generation, playground_job, run_config, sweep

from fsd_core.access import accounts
from fsd_core.errors import DatabaseOutdated, DatabaseUnavailable, Overtaken
from fsd_core.people import Person
from fsd_core.settings import get_settings
from fsd_core.tracking.acts import UseDescribed
from fsd_core.tracking.database.models import Base
from fsd_core.tracking.database.repository import Repository
from fsd_core.tracking.database.session import open_database, upgrade
from fsd_core.tracking.mlflow_store import connect

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from test_repository_jobs import claim_at_once


@pytest.fixture
def database_url(postgres_url: str, request: pytest.FixtureRequest) -> str:
    """An empty database of the test's own."""
    name = request.node.name.replace("test_", "lab_")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return postgres_url.rpartition("/")[0] + f"/{name}"


def test_each_job_is_claimed_once(repository: Repository, database_url: str) -> None:
    claim_at_once(repository, database_url)


def test_mlflow_keeps_files_in_the_home_where_its_server_looks_for_them(database_url: str, home: Path) -> None:
    get_settings.cache_clear()
    client, experiment = connect(database_url.replace("postgresql://", "postgresql+psycopg://"))
    assert client.get_experiment(experiment).artifact_location == (home / "mlflow" / "artifacts").as_uri()
    get_settings.cache_clear()


def test_migrations(database_url: str) -> None:
    with pytest.raises(DatabaseOutdated, match="There is no FSD Lab database"):
        open_database(database_url)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(upgrade, [database_url] * 2))
    database = open_database(database_url)
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    database.close()


def test_an_experiment_from_start_to_end(repository: Repository) -> None:
    id = repository.create_experiment(sweep("<b>&\0"))
    job = repository.claim(("experiment",), 60)
    for run in repository.experiment(id).runs:
        repository.start_run(run.id, {"device": "cpu"})
        with ThreadPoolExecutor(4) as pool:  # two recorders of one prompt take turns
            list(pool.map(lambda i, run=run: repository.record_generation(run.id, generation(i % 2, "a\0b")), range(8)))
        repository.finish_run(run.id, {"accuracy": run.position / 2, "speed": float("inf")})
    assert repository.finish_job(id, job.claim_token, "finished")
    found = repository.experiment(id)
    assert (found.name, found.status, found.prompts_done) == ("<b>&\ufffd", "finished", 6)
    assert [run.metrics["accuracy"] for run in repository.runs(order_by="accuracy")] == [1.0, 0.5, 0.0]
    assert repository.count_runs(search="fsd js") == 2
    assert list(repository.traces(found.runs[0].id)) == [(0, [STEP]), (1, [STEP])]
    assert found.created_at.utcoffset().total_seconds() == 0


def test_the_review_log_only_grows_and_two_at_once_are_told(repository: Repository) -> None:
    described = UseDescribed(name="Support chat")
    repository.append_acts("support-chat", "Ann", "author", [described], 0)
    before = repository.review_log()
    for statement in ("UPDATE review_log SET who = 'Eve'", "DELETE FROM review_log", "TRUNCATE review_log"):
        with pytest.raises(Exception, match="the review log only grows"), repository._database.session() as session:
            session.execute(text(statement))
    assert repository.review_log() == before

    def act(i: int) -> str:
        try:
            repository.append_acts("support-chat", f"P{i}", "author", [described], 1)
        except Overtaken:
            return "told"
        return "added"

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(act, range(6))) == ["added"] + ["told"] * 5
    assert [logged.sequence for logged in repository.review_log("support-chat")] == [1, 2]


def test_accounts(repository: Repository) -> None:
    accounts.add_user(repository, "Ann", "author", "correct horse battery")
    secret = accounts.sign_in(repository, "Ann", "correct horse battery")
    assert accounts.whose_cookie(repository, secret) == Person("Ann", "author")
    repository.remove_user("Ann")
    assert accounts.whose_cookie(repository, secret) is None


def test_sittings(repository: Repository) -> None:
    run_id = repository.create_run(run_config())
    repository.record_generation(run_id, generation(0))  # as before sittings were recorded
    with ThreadPoolExecutor(4) as pool:  # recorders take turns, so none makes a sitting that is there
        turns = range(1, 9)
        list(pool.map(lambda i: repository.record_generation(run_id, generation(i), {"threads": 1 + i % 2}), turns))
    run = repository.run(run_id)
    unrecorded, *others = (sitting.conditions.get("threads", 0) for sitting in run.sittings)
    assert (unrecorded, sorted(others)) == (0, [1, 2])
    assert sorted(map(len, repository.sitting_positions(run_id).values())) == [1, 4, 4]
    repository.delete_run(run_id)
    assert repository.sitting_positions(run_id) == {}


def test_a_lost_worker(repository: Repository) -> None:
    id = repository.enqueue(playground_job("\0"))
    lost = repository.claim(("playground",), -1)
    taken = repository.claim(("playground",), 60)
    assert (taken.id, taken.lost_workers) == (id, 1)
    assert not repository.finish_job(id, lost.claim_token, "finished")
    repository.append_chunks(id, [chunk(1), chunk(2)])
    assert repository.chunks(id, 0) == [(1, chunk(2))]
    repository.report_worker(1, "host", "cpu", "idle")
    assert repository.worker().alive


def test_what_the_server_refuses_is_told(postgres_url: str, database_url: str, repository: Repository) -> None:
    with pytest.raises(DatabaseUnavailable, match="does not"):
        open_database(postgres_url.rpartition("/")[0] + "/nowhere")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE traces RENAME TO away")
    with pytest.raises(DatabaseUnavailable, match="lacks tables of FSD Lab") as caught:
        list(repository.traces("any"))
    assert "\n" not in str(caught.value)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("ALTER ROLE postgres SET default_transaction_read_only = on")
    reader = open_database(database_url)
    try:
        with pytest.raises(DatabaseUnavailable, match="is read-only"):
            Repository(reader).create_run(run_config())
    finally:
        reader.close()
        with psycopg.connect(
            database_url, autocommit=True, options="-c default_transaction_read_only=off"
        ) as connection:
            connection.execute("ALTER ROLE postgres RESET default_transaction_read_only")
