"""Probe whether a folder can hold a database: two processes lock files in it in the ways that the program needs.

A mounted bucket or network folder may offer files without locks. Two processes would then write a SQLite file at once
and corrupt it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

PROBE_PATIENCE = 30.0  # seconds; a folder on another machine may be slow

Probe = Callable[[Path], str | None]
"""returns what a folder lacks, as the end of a sentence; ``None`` if it lacks nothing"""

# Code of the other process: for each kind of lock it prints whether it got the lock.
_OTHER = """
import fcntl, sqlite3, sys
folder = sys.argv[1]
def got(take):
    try: take()
    except (OSError, sqlite3.OperationalError): return "0"
    return "1"
one, two = open(folder + "/whole", "r+"), open(folder + "/range", "r+")
database = sqlite3.connect(folder + "/probe.db", timeout=0, isolation_level=None)
print(got(lambda: fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)),
      got(lambda: fcntl.lockf(two, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)),
      got(lambda: database.execute("BEGIN IMMEDIATE")))
"""


def lack_of(folder: Path) -> str | None:
    """Return the reason why ``folder`` cannot hold a database, or ``None``. Leaves nothing behind."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".probe-", dir=folder, ignore_cleanup_errors=True) as scratch:
            return _probe_locks(Path(scratch))
    except (OSError, sqlite3.Error, subprocess.SubprocessError) as error:
        return f"it cannot be used ({error})"


def is_writable(folder: Path) -> bool:
    """Whether a file can be created there. For a mounted folder, permissions alone do not tell."""
    with suppress(OSError), tempfile.TemporaryFile(dir=folder):
        return True
    return False


def _probe_locks(folder: Path) -> str | None:
    for name in ("whole", "range"):
        (folder / name).write_text("old")
    with (
        (folder / "whole").open("r+") as whole,
        (folder / "range").open("r+") as part,
        closing(sqlite3.connect(folder / "probe.db", isolation_level=None)) as database,
    ):
        database.execute("CREATE TABLE probe (x)")
        fcntl.flock(whole, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(part, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
        database.execute("BEGIN IMMEDIATE")
        if (locked := _try_locks(folder)) != ["0", "0", "0"]:
            return f"another process gets what this one has locked ({', '.join(_wrong_kinds(locked, '1'))})"
        database.execute("COMMIT")
        fcntl.flock(whole, fcntl.LOCK_UN)
        fcntl.lockf(part, fcntl.LOCK_UN, 10, 5)
        if (unlocked := _try_locks(folder)) != ["1", "1", "1"]:
            return f"a lock that is given back stays taken ({', '.join(_wrong_kinds(unlocked, '0'))})"
    (folder / "new").write_text("new")
    os.replace(folder / "new", folder / "whole")
    if (folder / "whole").read_text() != "new" or (folder / "new").exists():
        return "a file that is renamed does not take the place of another"
    return None


def _try_locks(folder: Path) -> list[str]:
    command = [sys.executable, "-I", "-S", "-c", _OTHER, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PROBE_PATIENCE, check=True).stdout.split()


def _wrong_kinds(answers: list[str], wrong: str) -> list[str]:
    kinds = ("a whole file", "a part of a file", "a database")
    return [kind for kind, answer in zip(kinds, answers, strict=True) if answer == wrong]
