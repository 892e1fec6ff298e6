"""Folders that can hold a database, and copies where they cannot."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fsd_core import system
from fsd_core.errors import DatabaseUnavailable
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.storage.upkeep import Snapshots
from fsd_core.system import is_writable, lack_of
from tests.tools.sizes import PATIENCE
from tests.tools.tracking_examples import sweep


@pytest.fixture(autouse=True)
def no_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process may take its time."""
    monkeypatch.setattr(system, "PROBE_PATIENCE", PATIENCE)


def test_a_folder_of_this_machine_lacks_nothing(tmp_path: Path) -> None:
    assert lack_of(tmp_path / "new") is None
    assert list((tmp_path / "new").iterdir()) == []
    assert is_writable(tmp_path)
    assert not is_writable(tmp_path / "nothing")


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


def test_it_copies_by_itself(tmp_path: Path) -> None:
    file, folder = tmp_path / "fsd.db", tmp_path / "bucket"
    database(file)._database.close()
    with Snapshots([file], folder, every=0.05):
        end = time.monotonic() + PATIENCE
        while not (folder / "fsd.db").exists():
            assert time.monotonic() < end
            time.sleep(0.05)


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


def test_a_damaged_copy_is_told_and_nothing_takes_its_place(tmp_path: Path) -> None:
    file, folder = tmp_path / "disk" / "fsd.db", tmp_path / "bucket"
    folder.mkdir()
    (folder / "fsd.db").write_bytes(b"no database at all" * 500)
    with pytest.raises(DatabaseUnavailable, match="put a whole one"):
        Snapshots([file], folder).__enter__()
    assert list(file.parent.iterdir()) == []
    assert (folder / "fsd.db").read_bytes() == b"no database at all" * 500
