"""Backup, restore and compaction of a SQLite database.

Copies of SQLite files in a folder that cannot hold a database itself, such as a bucket without locks.

The files are on a local disk and are lost with the machine. The copies are at most ``EVERY`` seconds older, and always
whole: a copy is written beside the last one and replaces it when complete.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fsd_core.errors import DatabaseUnavailable, NotApplicable, Unreadable, Unwritable
from fsd_core.settings import sqlite_url
from fsd_core.storage import opening
from fsd_core.storage.opening import BUSY_TIMEOUT, open_database, parse, sqlite_path, upgrade
from fsd_core.system import flush

logger = logging.getLogger(__name__)

EVERY = 60.0  # seconds


class Snapshots:
    """Restores missing files on entry, copies those that change, and copies once more at the end."""

    def __init__(self, files: Sequence[Path], folder: Path, every: float = EVERY) -> None:
        self.copies = {file: folder / file.name for file in files}
        self.every = every
        self._seen: dict[Path, object] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="snapshots", daemon=True)

    def __enter__(self) -> Snapshots:
        for file, copy in self.copies.items():
            if not file.exists() and copy.exists():
                self._restore(copy, file)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.take()

    def take(self) -> None:
        """Copy the files that changed since the last copy. A failed copy is logged and tried again."""
        for file, copy in self.copies.items():
            try:
                state = _state(file)
                if state is not None and state != self._seen.get(file):
                    _copy(file, copy)
                    self._seen[file] = state
            except (OSError, sqlite3.Error) as error:
                logger.warning("%s could not be copied to %s (%s): what was copied before stays.", file, copy, error)

    def _watch(self) -> None:
        while not self._stop.wait(self.every):
            self.take()

    def _restore(self, copy: Path, file: Path) -> None:
        """Restore a file. Raises ``DatabaseUnavailable`` for a damaged copy, which an empty database would else
        replace."""
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f"{file.name}.arriving")
        try:
            shutil.copyfile(copy, partial)
            with closing(sqlite3.connect(partial)) as database:
                if database.execute("PRAGMA quick_check").fetchone() != ("ok",):
                    raise sqlite3.DatabaseError("it is damaged")
            os.replace(partial, file)
        except (OSError, sqlite3.Error) as error:
            partial.unlink(missing_ok=True)
            raise DatabaseUnavailable(
                f"The copy {copy} cannot be restored ({error}): put a whole one in its place, or move it away to begin "
                "with an empty database."
            ) from error
        self._seen[file] = _state(file)


def _state(file: Path) -> object:
    """Return a value that differs after a change, or ``None`` without a file."""
    state = []
    for path in (file, file.with_name(f"{file.name}-wal")):
        if path.exists():
            info = path.stat()
            state.append((info.st_mtime_ns, info.st_size))
    return tuple(state) or None


def _copy(file: Path, copy: Path) -> None:
    """Copy one moment's state, whoever writes meanwhile: first to the local disk, then into the folder in one piece."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / file.name
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(whole)) as target:
            source.backup(target)
        partial = copy.with_name(f"{copy.name}.arriving")
        with whole.open("rb") as reader, partial.open("wb") as writer:
            shutil.copyfileobj(reader, writer)
            writer.flush()
            os.fsync(writer.fileno())
        os.replace(partial, copy)


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
        opening.check_known(versions[0][0] if versions else None)
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
