"""Copies of SQLite files in a folder that cannot hold a database itself, such as a bucket without locks.

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
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from fsd_core.errors import DatabaseUnavailable

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
