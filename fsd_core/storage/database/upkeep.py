"""A SQLite database copied, put back and compacted. PostgreSQL has programs of its own for that."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fsd_core.errors import DatabaseUnavailable, InvalidSetting
from fsd_core.settings import sqlite_url
from fsd_core.storage.database import schema
from fsd_core.storage.database.connection import BUSY_TIMEOUT, open_database, parse, sqlite_path, upgrade

_BESIDE = "{name}.before-restore-{moment:%Y%m%d-%H%M%S}"


def backup(url: str, file: Path) -> int:
    """Writes a checked copy of the database as it is at one moment, while others use it; its size in bytes.

    Raises ``InvalidSetting`` for a file that is there already or a database of another kind, and
    ``DatabaseUnavailable`` if the database or the copy is damaged, or there is no room for it.
    """
    path = _file(url, "pg_dump")
    with new_file(file) as partial:
        open_database(url).close()  # it is there, and of this version
        with closing(_connect(path)) as source, closing(sqlite3.connect(partial)) as copy:
            source.backup(copy)
        check(partial)
    return file.stat().st_size


@contextmanager
def new_file(file: Path) -> Iterator[Path]:
    """Where to write what becomes ``file`` once the block has ended well; of anything else nothing is left.

    Raises ``InvalidSetting`` for a file that is there already, and ``DatabaseUnavailable`` where there is no room.
    """
    if file.exists():
        raise InvalidSetting(f"{file} already exists: name a new file. A backup never replaces one.")
    partial = file.with_name(f".{file.name}.part")
    with _file_errors(file), _removed(partial):
        file.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        _sync(partial)
        partial.rename(file)
        _sync(file.parent)


def restore(url: str, file: Path) -> Path | None:
    """Puts a backup in the place of the database, brought to this version; where the former one now lies.

    Nobody may be using the database. Raises ``InvalidSetting`` if the file is no backup of ours, and
    ``DatabaseUnavailable`` if it is damaged or cannot be copied.
    """
    path = _file(url, "pg_restore")
    if file.is_dir():
        raise InvalidSetting(f"{file} is a folder: name a backup that `db backup` has made.")
    if not file.is_file():
        raise InvalidSetting(f"There is no file {file}: name a backup that `db backup` has made.")
    check(file)
    partial, former = path.with_name(f".{path.name}.part"), None
    with _file_errors(path), _removed(partial):
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(_connect(file)) as source, closing(sqlite3.connect(partial)) as copy:
            source.backup(copy)
        upgrade(sqlite_url(partial))
        _sync(partial)
        if path.exists():
            former = path.with_name(_BESIDE.format(name=path.name, moment=datetime.now(UTC)))
            for suffix in ("", "-journal"):  # what a killed writer left belongs to the file that it left it for
                if (beside := Path(f"{path}{suffix}")).exists():
                    beside.rename(f"{former}{suffix}")
        partial.rename(path)
        _sync(path.parent)
    return former


def vacuum(url: str) -> tuple[int, int]:
    """Gives the space of what was deleted back to the disk; the sizes in bytes before and after.

    Takes as much room again while it works. Raises ``DatabaseUnavailable`` while others write.
    """
    path = _file(url, "VACUUM")
    open_database(url).close()
    before = path.stat().st_size
    with _file_errors(path), closing(_connect(path)) as connection:
        connection.execute("VACUUM")
    return before, path.stat().st_size


def check(file: Path) -> None:
    """Raises ``DatabaseUnavailable`` for a damaged file, ``InvalidSetting`` for one that is no database of ours."""
    with _file_errors(file), closing(_connect(file)) as connection:
        try:
            known = connection.execute("SELECT version_num FROM alembic_version").fetchall()
            connection.execute("SELECT id FROM experiments LIMIT 1")
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB or "no such" in str(error):
                raise InvalidSetting(
                    f"{file} is not a database of FSD Lab: name a backup that `db backup` has made."
                ) from None
            raise
        schema.check_known(known[0][0] if known else None)
        found = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
    if found != ["ok"] or broken is not None:
        raise DatabaseUnavailable(f"The database {file} is damaged ({found[0]}): take another backup.")


def _file(url: str, instead: str) -> Path:
    path = sqlite_path(parse(url))
    if path is None:
        raise InvalidSetting(f"This works on SQLite files, and the database is PostgreSQL: use its own {instead}.")
    return path


def _connect(path: Path) -> sqlite3.Connection:
    """To a file that is there."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None)


@contextmanager
def _removed(partial: Path) -> Iterator[None]:
    """Nothing half-made is left, whatever happens in the block."""
    partial.unlink(missing_ok=True)
    try:
        yield
    finally:
        for suffix in ("", "-journal"):
            Path(f"{partial}{suffix}").unlink(missing_ok=True)


@contextmanager
def _file_errors(file: Path) -> Iterator[None]:
    """Raises ``DatabaseUnavailable`` for what SQLite or the system says of a file."""
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


def _sync(path: Path) -> None:
    """Until it is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
