"""A database that cannot be used is told of in one clear sentence; the schema is that of the models."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from pydantic import ValidationError
from sqlalchemy import text
from sqlalchemy.orm import Session

from fsd_core.errors import DatabaseOutdated, DatabaseUnavailable, DataDamaged, Misconfigured
from fsd_core.settings import Settings
from fsd_core.storage import opening
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import Base, RunRow
from tests.tools.sizes import size
from tests.tools.tracking_examples import run_config, sweep
from tools.attack import damage

FIRST_REVISION = Path(__file__).parents[1] / "data" / "database_0001.sql"
UPGRADE = "`python -m fsd_core db upgrade`"


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def test_the_migrations_make_what_the_models_say(repository: Repository) -> None:
    with repository._database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_a_database_of_the_first_revision_is_upgraded(database_url: str) -> None:
    path = file_of(database_url)
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as connection:
        connection.executescript(FIRST_REVISION.read_text())
    connection.close()
    upgrade(database_url)
    database = open_database(database_url)
    repository = Repository(database)
    (experiment,) = repository.experiments()
    assert (experiment.name, experiment.status, experiment.prompts_done) == ("kept", "running", 1)
    (generation,) = repository.generations(experiment.runs[0].id)
    assert (generation.text, repository.trace(generation.id)[0].emitted) == ("so #### 5", (5, 7))
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    database.close()


def test_revisions_are_those_of_alembic() -> None:
    scripts = ScriptDirectory.from_config(opening.config())
    assert [script.revision for script in scripts.walk_revisions()][::-1] == [*opening.revisions()]
    assert opening.head() == scripts.get_current_head()


def test_a_database_that_stands_where_it_should_is_opened_without_alembic(database_url: str) -> None:
    upgrade(database_url)
    opened = (
        "import sys; from fsd_core.storage import opening as connection; "
        f"connection.upgrade({database_url!r}); connection.open_database({database_url!r}); "
        "print('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", opened], capture_output=True, text=True).stdout.strip() == "False"


def test_upgrading_twice_changes_nothing(repository: Repository, database_url: str) -> None:
    run_id = repository.create_run(run_config())
    upgrade(database_url)
    assert repository.run(run_id).status == "queued"


def test_a_missing_database_is_not_made_by_opening_it(database_url: str) -> None:
    with pytest.raises(DatabaseOutdated, match="no FSD Lab database") as caught:
        open_database(database_url)
    assert UPGRADE in str(caught.value)
    assert not file_of(database_url).exists()
    file_of(database_url).parent.mkdir(parents=True)
    file_of(database_url).touch()
    with pytest.raises(DatabaseOutdated, match="no FSD Lab database"):
        open_database(database_url)


@pytest.mark.parametrize("name", ["a b", "a%20b", "what?", "a#b", "über", "a%2Fb", "x;y&z=1", "50%", "file:x", "'\""])
def test_a_home_may_have_any_name(name: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / name)
    upgrade(settings.resolved_database_url)
    database = open_database(settings.resolved_database_url)
    run_id = Repository(database).create_run(run_config())
    database.close()
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*")] == [Path(name), Path(name, "fsd.db")]
    with sqlite3.connect(tmp_path / name / "fsd.db") as connection:
        assert connection.execute("SELECT id FROM runs").fetchall() == [(run_id,)]
    connection.close()


def test_a_home_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="not valid UTF-8"):
        Settings(home=tmp_path / "\udcff")


def test_a_database_of_a_newer_version_is_refused(repository: Repository, database_url: str) -> None:
    with repository._database.session() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for refused in (open_database, upgrade):
        with pytest.raises(DatabaseOutdated, match="9999") as caught:
            refused(database_url)
        assert UPGRADE in str(caught.value)


def test_locked(repository: Repository, database_url: str) -> None:
    holder = sqlite3.connect(file_of(database_url), isolation_level=None)
    database = open_database(database_url, busy_timeout=0.05)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(DatabaseUnavailable, match="locked by another process"):
        Repository(database).create_experiment(sweep())
    with pytest.raises(DatabaseUnavailable, match="locked by another process"):
        open_database(database_url, busy_timeout=0.05)
    holder.execute("ROLLBACK")
    holder.close()
    Repository(database).create_experiment(sweep())
    assert repository.count_runs() == 3  # of the first attempt nothing was left
    database.close()


def test_read_only(repository: Repository, database_url: str) -> None:
    run_id = repository.create_run(run_config())
    database = open_database(f"sqlite:///file:{file_of(database_url)}?mode=ro&uri=true")
    reader = Repository(database)
    assert reader.run(run_id).status == "queued"
    with pytest.raises(DatabaseUnavailable, match="is read-only"):
        reader.create_run(run_config())
    database.close()


def test_full_disk(repository: Repository) -> None:
    with repository._database.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DatabaseUnavailable, match="disk is full"):
        [repository.create_experiment(sweep("full")) for _ in range(100)]
    assert repository.count_runs() == 3 * len(repository.experiments(1000))


@pytest.mark.parametrize("content", [b"this is a letter, not a database. " * 200, None])
def test_corrupt(content: bytes | None, repository: Repository, database_url: str) -> None:
    repository._database.close()
    path = file_of(database_url)
    whole = path.read_bytes()
    path.write_bytes(content or whole[:100] + b"\xff" * (len(whole) - 100))
    with pytest.raises(DatabaseUnavailable, match=r"is (damaged|not a SQLite database)"):
        open_database(database_url)


def test_a_file_that_was_emptied_while_it_was_open(repository: Repository, database_url: str) -> None:
    file_of(database_url).write_bytes(b"")
    for action in (repository.runs, lambda: repository.create_run(run_config())):
        with pytest.raises(DatabaseUnavailable, match=r"fsd\.db lacks tables of FSD Lab: it was emptied") as caught:
            action()
        assert UPGRADE in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_file_of_another_program(database_url: str) -> None:
    file_of(database_url).parent.mkdir()
    with sqlite3.connect(file_of(database_url)) as connection:
        connection.execute("CREATE TABLE runs (run_uuid VARCHAR(32))")
    connection.close()
    with pytest.raises(DatabaseUnavailable, match="tables of another program"):
        upgrade(database_url)
    with sqlite3.connect(file_of(database_url)) as connection:  # and nothing was added to it
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("runs",)]
    connection.close()


def test_a_folder_that_cannot_be_made(home: Path) -> None:
    home.write_text("a file where the folder should be")
    with pytest.raises(DatabaseUnavailable, match="cannot be made"):
        upgrade(f"sqlite:///{home / 'fsd.db'}")


def test_an_unreachable_server_is_named_without_its_password() -> None:
    with pytest.raises(DatabaseUnavailable, match="does not answer") as caught:
        open_database("postgresql://me:secret@127.0.0.1:9/lab")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["nonsense", "mysql://host/name", "sqlite://", "sqlite:///:memory:"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(Misconfigured):
        open_database(url)


def test_the_alembic_command_uses_the_same_scripts(home: Path) -> None:
    home.mkdir()
    root = Path(__file__).parents[2]
    environment = os.environ | {"FSD_DATABASE_URL": f"sqlite:///{home / 'fsd.db'}"}
    command = [sys.executable, "-m", "alembic", "upgrade", "head"]
    subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True)
    open_database(f"sqlite:///{home / 'fsd.db'}").close()


@pytest.mark.wide
def test_damaged_bytes_are_a_sentence_wherever_they_are(tmp_path: Path) -> None:
    trials = size(12, 40)
    seen = damage.attack(tmp_path, trials)
    assert seen["DataDamaged"] + seen["DatabaseUnavailable"] > trials // 8


def test_rows_that_damaged_pages_hide_are_a_sentence(repository: Repository) -> None:
    run_id = repository.create_run(run_config())

    def of_no_generation(session: Session) -> None:
        session.execute(text("INSERT INTO traces (generation_id, data, sha256) VALUES (99, x'00', '')"))

    def of_a_run_that_is_gone(session: Session) -> None:
        run = session.get_one(RunRow, run_id)
        session.execute(text("DELETE FROM runs"))
        run.prompts_done += 1

    for write, error in ((of_no_generation, DatabaseUnavailable), (of_a_run_that_is_gone, DataDamaged)):
        with pytest.raises(error, match="restore it from a backup"), repository._database.session() as session:
            write(session)
    assert repository.run(run_id).prompts_done == 0
