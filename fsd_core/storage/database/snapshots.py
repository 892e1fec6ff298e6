"""Copies of SQLite files in a folder that cannot hold a database itself, such as a bucket without locks.

The files are on a local disk, where they are lost with the machine. What is in the folder is at most ``EVERY`` seconds
older, and whole at any moment: a copy is made beside the last one and takes its place when it is complete.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from fsd_core.errors import DatabaseUnavailable

logger = logging.getLogger(__name__)

EVERY = 60.0  # seconds


class Snapshots:
    """Restores the files that are not there when it is entered, copies those that change, and once more at the end."""

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
        """Copies the files that changed since the last copy. One that cannot be copied is told, and tried again."""
        for file, copy in self.copies.items():
            try:
                now = _state(file)
                if now is not None and now != self._seen.get(file):
                    _copied(file, copy)
                    self._seen[file] = now
            except (OSError, sqlite3.Error) as error:
                logger.warning("%s could not be copied to %s (%s): what was copied before stays.", file, copy, error)

    def _watch(self) -> None:
        while not self._stop.wait(self.every):
            self.take()

    def _restore(self, copy: Path, file: Path) -> None:
        """Raises ``DatabaseUnavailable`` for a copy that is no whole database: an empty one would take its place."""
        file.parent.mkdir(parents=True, exist_ok=True)
        arriving = file.with_name(f"{file.name}.arriving")
        try:
            shutil.copyfile(copy, arriving)
            with closing(sqlite3.connect(arriving)) as database:
                if database.execute("PRAGMA quick_check").fetchone() != ("ok",):
                    raise sqlite3.DatabaseError("it is damaged")
            os.replace(arriving, file)
        except (OSError, sqlite3.Error) as error:
            arriving.unlink(missing_ok=True)
            raise DatabaseUnavailable(
                f"The copy {copy} cannot be restored ({error}): put a whole one in its place, or move it away to begin "
                "with an empty database."
            ) from error
        self._seen[file] = _state(file)


def _state(file: Path) -> object:
    """What differs after a change; ``None`` where there is no file."""
    found = []
    for path in (file, file.with_name(f"{file.name}-wal")):
        if path.exists():
            told = path.stat()
            found.append((told.st_mtime_ns, told.st_size))
    return tuple(found) or None


def _copied(file: Path, copy: Path) -> None:
    """A copy of one moment, whoever writes meanwhile: first on the local disk, then into the folder in one piece."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place) / file.name
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(whole)) as target:
            source.backup(target)
        arriving = copy.with_name(f"{copy.name}.arriving")
        with whole.open("rb") as made, arriving.open("wb") as written:
            shutil.copyfileobj(made, written)
            written.flush()
            os.fsync(written.fileno())
        os.replace(arriving, copy)
