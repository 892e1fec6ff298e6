"""Databases that are copies of one that was made once: migrating and filling one takes longer than most tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fsd_core.storage import opening
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository


@contextmanager
def copy_of(file: Path, url: str) -> Iterator[Repository]:
    """A repository on a copy, at the SQLite ``url``, of a database that nobody has open."""
    to = Path(url.removeprefix("sqlite:///"))
    opening.make_folder(to.parent)
    shutil.copyfile(file, to)
    database = open_database(url)
    try:
        yield Repository(database)
    finally:
        database.close()
