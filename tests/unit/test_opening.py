"""Folders and databases that cannot be used are told of in one sentence, and files appear whole."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from pydantic import ValidationError
from sqlalchemy import text
from sqlalchemy.orm import Session

from fsd_core import system
from fsd_core.errors import DatabaseOutdated, DatabaseUnavailable, DataDamaged, Misconfigured
from fsd_core.settings import Settings
from fsd_core.storage import opening
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import Base, RunRow
from fsd_core.storage.upkeep import Snapshots
from fsd_core.system import is_writable, lack_of, whole_file
from tests.tools.sizes import PATIENCE, size
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


@pytest.fixture
def no_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process may take its time."""
    monkeypatch.setattr(system, "PROBE_PATIENCE", PATIENCE)


@pytest.mark.usefixtures("no_haste")
def test_a_folder_of_this_machine_lacks_nothing(tmp_path: Path) -> None:
    assert lack_of(tmp_path / "new") is None
    assert list((tmp_path / "new").iterdir()) == []
    assert is_writable(tmp_path)
    assert not is_writable(tmp_path / "nothing")


@pytest.mark.usefixtures("no_haste")
def test_locks_that_do_not_hold_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount that says yes to every lock, and keeps none."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    assert lack_of(tmp_path) == "another process gets what this one has locked (a whole file)"
    monkeypatch.setattr(fcntl, "lockf", lambda *_: None)
    assert "(a whole file, a part of a file)" in str(lack_of(tmp_path))
    monkeypatch.undo()

    class Careless(sqlite3.Connection):
        def execute(self, sql: str, *more: Any) -> sqlite3.Cursor:
            return super().execute("SELECT 1" if sql in ("BEGIN IMMEDIATE", "COMMIT") else sql, *more)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=Careless, **k))
    assert lack_of(tmp_path) == "another process gets what this one has locked (a database)"


@pytest.mark.usefixtures("no_haste")
def test_locks_that_are_not_offered_or_stay_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    assert "Function not implemented" in str(lack_of(tmp_path))
    monkeypatch.undo()
    lockf = fcntl.lockf
    monkeypatch.setattr(fcntl, "lockf", lambda file, how, *rest: how == fcntl.LOCK_UN or lockf(file, how, *rest))
    assert lack_of(tmp_path) == "a lock that is given back stays taken (a part of a file)"
    monkeypatch.undo()
    monkeypatch.setattr(os, "replace", lambda a, b: None)
    assert lack_of(tmp_path) == "a file that is renamed does not take the place of another"
    assert "it cannot be used" in str(system.lack_of(Path("/proc/nothing")))


def database(file: Path) -> Repository:
    url = f"sqlite:///{file}"
    upgrade(url)
    return Repository(open_database(url))


def count(file: Path) -> int:
    repository = Repository(open_database(f"sqlite:///{file}"))
    try:
        return len(repository.experiments(1000))
    finally:
        repository._database.close()


@pytest.mark.usefixtures("no_haste")
def test_what_is_kept_comes_back_on_another_disk(tmp_path: Path) -> None:
    file, folder = tmp_path / "disk" / "fsd.db", tmp_path / "bucket"
    with Snapshots([file, tmp_path / "disk" / "not-there.db"], folder) as snapshots:
        repository = database(file)
        repository.create_experiment(sweep())
        snapshots.take()
        assert count(folder / "fsd.db") == 1
        before = (folder / "fsd.db").stat().st_mtime_ns
        snapshots.take()  # nothing has changed
        assert (folder / "fsd.db").stat().st_mtime_ns == before
        repository.create_experiment(sweep("A second"))
        repository._database.close()
    assert count(folder / "fsd.db") == 2
    assert sorted(path.name for path in folder.iterdir()) == ["fsd.db"]
    with Snapshots([new := tmp_path / "new" / "fsd.db"], folder):
        assert count(new) == 2


@pytest.mark.usefixtures("no_haste")
def test_a_copy_is_of_one_moment_while_others_write(tmp_path: Path) -> None:
    file, folder = tmp_path / "fsd.db", tmp_path / "bucket"
    repository = database(file)
    with closing(sqlite3.connect(file, isolation_level=None)) as writer, Snapshots([file], folder) as snapshots:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute(
            "INSERT INTO users (name, role, password, created_at) VALUES ('half', 'viewer', '', '2026-01-01')"
        )
        snapshots.take()
        with closing(sqlite3.connect(folder / "fsd.db")) as copy:
            assert copy.execute("SELECT count(*) FROM users").fetchone() == (0,)
        writer.execute("COMMIT")
    with closing(sqlite3.connect(folder / "fsd.db")) as copy:
        assert copy.execute("SELECT count(*) FROM users").fetchone() == (1,)
    repository._database.close()


@pytest.mark.usefixtures("no_haste")
def test_it_copies_by_itself(tmp_path: Path) -> None:
    file, folder = tmp_path / "fsd.db", tmp_path / "bucket"
    database(file)._database.close()
    with Snapshots([file], folder, every=0.05):
        end = time.monotonic() + PATIENCE
        while not (folder / "fsd.db").exists():
            assert time.monotonic() < end
            time.sleep(0.05)


@pytest.mark.usefixtures("no_haste")
def test_a_folder_that_is_full_is_told_and_the_last_copy_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file, folder = tmp_path / "fsd.db", tmp_path / "bucket"
    repository = database(file)
    with Snapshots([file], folder) as snapshots:
        snapshots.take()
        repository.create_experiment(sweep())

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("shutil.copyfileobj", full)
        snapshots.take()
        assert "No space left on device" in caplog.text
        assert count(folder / "fsd.db") == 0
        monkeypatch.undo()
    assert count(folder / "fsd.db") == 1
    repository._database.close()


@pytest.mark.usefixtures("no_haste")
def test_a_damaged_copy_is_told_and_nothing_takes_its_place(tmp_path: Path) -> None:
    file, folder = tmp_path / "disk" / "fsd.db", tmp_path / "bucket"
    folder.mkdir()
    (folder / "fsd.db").write_bytes(b"no database at all" * 500)
    with pytest.raises(DatabaseUnavailable, match="put a whole one"):
        Snapshots([file], folder).__enter__()
    assert list(file.parent.iterdir()) == []
    assert (folder / "fsd.db").read_bytes() == b"no database at all" * 500


def test_the_new_file_takes_the_place_of_the_former(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text("former")
    with whole_file(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "former"
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("card.json", "new")]


def test_what_fails_leaves_the_former_alone(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text("former")

    def interrupted() -> None:
        with whole_file(path) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("card.json", "former")]


def test_a_kill_leaves_the_former_and_what_it_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text("former")
    if not (child := os.fork()):
        with whole_file(path) as partial:
            partial.write_text("half, and longer than what is written next")
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert path.read_text() == "former"
    with whole_file(path) as partial:
        partial.write_text("new")
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("card.json", "new")]
