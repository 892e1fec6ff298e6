"""Every generation knows its sitting; a run has one for each set of conditions, as long as a prompt belongs to it."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

from alembic import command
from sqlalchemy import text

from fsd_core.metrics import UNRECORDED
from fsd_core.settings import sqlite_url
from fsd_core.storage import opening
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from tests.tools.tracking_examples import generation, run_config, sweep

GOLDEN = Path(__file__).parents[1] / "golden" / "database.sql"
TWO, ONE = {"device": "cpu", "threads": 2}, {"device": "cpu", "threads": 1}


def stored(repository: Repository) -> int:
    with repository._database.session(readonly=True) as session:
        return session.scalar(text("SELECT count(*) FROM sittings")) or 0


def test_the_same_conditions_are_one_sitting_and_others_another(repository: Repository) -> None:
    id = repository.create_run(run_config())
    for position, conditions in enumerate((TWO, TWO, ONE, TWO, ONE)):
        repository.record_generation(id, generation(position), conditions)
    run = repository.run(id)
    assert [sitting.conditions for sitting in run.measurement_sessions] == [TWO, ONE]
    assert all(sitting.started_at for sitting in run.measurement_sessions)
    first, second = (sitting.id for sitting in run.measurement_sessions)
    assert repository.session_positions(id) == {first: [0, 1, 3], second: [2, 4]}
    assert [g.sitting_id for g in repository.generations(id)] == [first, first, second, first, second]
    assert run.speed_mixed == ("number of threads",)


def test_a_generation_that_is_recorded_twice_makes_no_sitting(repository: Repository) -> None:
    id = repository.create_run(run_config())
    repository.record_generation(id, generation(0), TWO)
    repository.record_generation(id, generation(0), ONE)
    assert [sitting.conditions for sitting in repository.run(id).measurement_sessions] == [TWO]


def test_a_prompt_that_was_set_aside_has_no_sitting_and_mixes_nothing(repository: Repository) -> None:
    id = repository.create_run(run_config())
    repository.record_generation(id, replace(generation(0, outcome="failed"), seconds=0.0))
    repository.record_generation(id, generation(1), TWO)
    assert repository.run(id).speed_mixed == ()
    assert repository.generations(id)[0].sitting_id is None


def test_a_sitting_goes_with_the_last_of_its_prompts(repository: Repository) -> None:
    id = repository.create_run(run_config())
    repository.record_generation(id, generation(0), TWO)
    repository.record_generation(id, generation(1, outcome="failed"), ONE)
    repository.finish_run(id, {"failed": 1})
    repository.reopen_runs([id])
    assert [sitting.conditions for sitting in repository.run(id).measurement_sessions] == [TWO]
    repository.record_generation(id, generation(1), TWO)
    assert repository.run(id).speed_mixed == ()


def test_sittings_go_with_their_run(repository: Repository) -> None:
    id = repository.create_experiment(sweep(), enqueue=False)
    first, *others = (run.id for run in repository.experiment(id).runs)
    for run in (first, *others):
        repository.record_generation(run, generation(0), TWO)
        repository.record_generation(run, generation(1), ONE)
    assert [len(run.measurement_sessions) for run in repository.experiment(id).runs] == [2, 2, 2]
    repository.delete_run(first)
    assert stored(repository) == 4
    repository.delete_experiment(id)
    assert stored(repository) == 0


def test_of_former_prompts_no_sitting_is_known_until_their_run_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "fsd.db"
    with sqlite3.connect(file) as old:
        old.executescript(GOLDEN.read_text(encoding="utf-8"))
    old.close()
    upgrade(sqlite_url(file))
    with sqlite3.connect(file) as now:
        assert now.execute("PRAGMA foreign_key_check").fetchall() == []
        assert now.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    now.close()
    database = open_database(sqlite_url(file))
    repository = Repository(database)
    runs = repository.runs(limit=10)
    assert stored(repository) == 0
    assert {(run.measurement_sessions, run.speed_mixed) for run in runs} == {((), ())}
    assert all(run.provenance and run.conditions[0]["threads"] for run in runs)  # for what is compared with others
    id = runs[0].id
    former = [g.position for g in repository.generations(id)]
    with database.session() as session:
        session.execute(text("UPDATE runs SET status = 'running' WHERE id = :id"), {"id": id})
    repository.record_generation(id, generation(9), TWO)
    repository.record_generation(id, generation(10), TWO)
    run = repository.run(id)
    assert [sitting.conditions for sitting in run.measurement_sessions] == [{}, TWO]
    assert list(repository.session_positions(id).values()) == [former, [9, 10]]
    assert run.speed_mixed == (UNRECORDED,)
    database.close()


def test_the_migration_can_be_undone(tmp_path: Path, repository: Repository) -> None:
    id = repository.create_run(run_config())
    repository.record_generation(id, generation(0), TWO)
    with repository._database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        command.downgrade(opening.config(connection), "0002")
        assert "sitting_id" not in {row[1] for row in connection.exec_driver_sql("PRAGMA table_info(generations)")}
        assert connection.exec_driver_sql("SELECT count(*) FROM generations").scalar() == 1


def test_the_columns_are_added_without_copying_the_texts(tmp_path: Path) -> None:
    """A table that is rebuilt gets its definition anew; one that is altered keeps it, and its texts where they are."""
    file = tmp_path / "fsd.db"
    with sqlite3.connect(file) as old:
        old.executescript(GOLDEN.read_text(encoding="utf-8"))
        before = old.execute("SELECT rootpage FROM sqlite_master WHERE name = 'generations'").fetchone()
    old.close()
    upgrade(sqlite_url(file))
    with sqlite3.connect(file) as now:
        assert now.execute("SELECT rootpage FROM sqlite_master WHERE name = 'generations'").fetchone() == before
    now.close()
