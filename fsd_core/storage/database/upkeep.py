"""Backup, restore and compaction of a SQLite database. PostgreSQL has its own programs for that."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fsd_core.errors import DatabaseUnavailable, NotApplicable, Unreadable, Unwritable
from fsd_core.settings import sqlite_url
from fsd_core.storage.database import schema
from fsd_core.storage.database.connection import BUSY_TIMEOUT, open_database, parse, sqlite_path, upgrade
from fsd_core.whole_files import flush

_FORMER_NAME = "{name}.before-restore-{moment:%Y%m%d-%H%M%S}"


def backup(url: str, file: Path) -> int:
    """Write a checked snapshot of the database while others use it. Returns its size in bytes.

    Raises ``InvalidSetting`` if the file exists or the database is of another kind, and ``DatabaseUnavailable`` if the
    database or the copy is damaged, or there is no room for it.
    """
    path = _file(url, "pg_dump")
    with new_file(file) as partial:
        open_database(url).close()  # it exists, and has this version
        with closing(_connect(path)) as source, closing(sqlite3.connect(partial)) as copy:
            source.backup(copy)
        check(partial)
    return file.stat().st_size


@contextmanager
def new_file(file: Path) -> Iterator[Path]:
    """Yield a path to write to, which becomes ``file`` if the block succeeds. Otherwise nothing is left behind.

    Raises ``InvalidSetting`` if the file exists, and ``DatabaseUnavailable`` if there is no room.
    """
    if file.exists():
        raise Unwritable(f"{file} already exists: name a new file. A backup never replaces one.")
    partial = file.with_name(f".{file.name}.part")
    with _file_errors(file), _cleanup(partial):
        file.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        flush(partial)
        partial.rename(file)
        flush(file.parent)


def restore(url: str, file: Path) -> Path | None:
    """Replace the database with a backup, upgraded to this version. Returns the new path of the former database.

    Nobody may be using the database. Raises ``InvalidSetting`` if the file is no backup of FSD Lab, and
    ``DatabaseUnavailable`` if it is damaged or cannot be copied.
    """
    path = _file(url, "pg_restore")
    if file.is_dir():
        raise Unreadable(f"{file} is a folder: name a backup that `db backup` has made.")
    if not file.is_file():
        raise Unreadable(f"There is no file {file}: name a backup that `db backup` has made.")
    check(file)
    partial, former = path.with_name(f".{path.name}.part"), None
    with _file_errors(path), _cleanup(partial):
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(_connect(file)) as source, closing(sqlite3.connect(partial)) as copy:
            source.backup(copy)
        upgrade(sqlite_url(partial))
        flush(partial)
        if path.exists():
            former = path.with_name(_FORMER_NAME.format(name=path.name, moment=datetime.now(UTC)))
            for suffix in ("", "-journal"):  # a killed writer's journal belongs to its database file
                if (sibling := Path(f"{path}{suffix}")).exists():
                    sibling.rename(f"{former}{suffix}")
        partial.rename(path)
        flush(path.parent)
    return former


def vacuum(url: str) -> tuple[int, int]:
    """Free the disk space of deleted data. Returns the sizes in bytes before and after.

    Needs as much room again while it works. Raises ``DatabaseUnavailable`` while others write.
    """
    path = _file(url, "VACUUM")
    open_database(url).close()
    before = path.stat().st_size
    with _file_errors(path), closing(_connect(path)) as connection:
        connection.execute("VACUUM")
    return before, path.stat().st_size


def check(file: Path) -> None:
    """Raise ``DatabaseUnavailable`` for a damaged file, ``InvalidSetting`` for one that is no database of FSD Lab."""
    with _file_errors(file), closing(_connect(file)) as connection:
        try:
            versions = connection.execute("SELECT version_num FROM alembic_version").fetchall()
            connection.execute("SELECT id FROM experiments LIMIT 1")
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB or "no such" in str(error):
                raise Unreadable(
                    f"{file} is not a database of FSD Lab: name a backup that `db backup` has made."
                ) from None
            raise
        schema.check_known(versions[0][0] if versions else None)
        problems = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
    if problems != ["ok"] or broken is not None:
        raise DatabaseUnavailable(f"The database {file} is damaged ({problems[0]}): take another backup.")


def _file(url: str, alternative: str) -> Path:
    path = sqlite_path(parse(url))
    if path is None:
        raise NotApplicable(f"This works on SQLite files, and the database is PostgreSQL: use its own {alternative}.")
    return path


def _connect(path: Path) -> sqlite3.Connection:
    """Connect to an existing file."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None)


@contextmanager
def _cleanup(partial: Path) -> Iterator[None]:
    """Remove the partial file before and after the block, whatever happens in it."""
    partial.unlink(missing_ok=True)
    try:
        yield
    finally:
        for suffix in ("", "-journal"):
            Path(f"{partial}{suffix}").unlink(missing_ok=True)


@contextmanager
def _file_errors(file: Path) -> Iterator[None]:
    """Raise ``DatabaseUnavailable`` for a file's errors from SQLite or the system."""
    try:
        yield
    except sqlite3.Error as error:
        raise DatabaseUnavailable(
            f"The database {file} cannot be used ({error}): check the file and its disk."
        ) from error
    except DatabaseUnavailable:
        raise
    except OSError as error:
        raise DatabaseUnavailable(f"{file} cannot be written ({error.strerror}): choose another place.") from error
