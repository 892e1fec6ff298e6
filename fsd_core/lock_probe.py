"""Whether a folder can hold a database: two processes lock files in it, in the ways that the program relies on.

A bucket or a network folder that is mounted may offer files without locks. Two processes would then write a SQLite file
at once, and spoil it.
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

PROBE_PATIENCE = 30.0  # seconds: a folder on another machine takes its time, but not for good

Probe = Callable[[Path], str | None]
"""Says what a folder lacks, as the end of a sentence; ``None`` where it lacks nothing"""

# The other process: says for each way of locking whether it got the lock.
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
    """What keeps a database out of ``folder``; ``None`` where nothing does. Leaves nothing behind."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".probe-", dir=folder, ignore_cleanup_errors=True) as place:
            return _lack(Path(place))
    except (OSError, sqlite3.Error, subprocess.SubprocessError) as error:
        return f"it cannot be used ({error})"


def is_writable(folder: Path) -> bool:
    """Whether a file can be made there: permissions alone do not tell it of a folder that is mounted."""
    with suppress(OSError), tempfile.TemporaryFile(dir=folder):
        return True
    return False


def _lack(place: Path) -> str | None:
    for name in ("whole", "range"):
        (place / name).write_text("old")
    with (
        (place / "whole").open("r+") as whole,
        (place / "range").open("r+") as part,
        closing(sqlite3.connect(place / "probe.db", isolation_level=None)) as database,
    ):
        database.execute("CREATE TABLE probe (x)")
        fcntl.flock(whole, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(part, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
        database.execute("BEGIN IMMEDIATE")
        if (held := _others(place)) != ["0", "0", "0"]:
            return f"another process gets what this one has locked ({', '.join(_named(held, '1'))})"
        database.execute("COMMIT")
        fcntl.flock(whole, fcntl.LOCK_UN)
        fcntl.lockf(part, fcntl.LOCK_UN, 10, 5)
        if (free := _others(place)) != ["1", "1", "1"]:
            return f"a lock that is given back stays taken ({', '.join(_named(free, '0'))})"
    (place / "new").write_text("new")
    os.replace(place / "new", place / "whole")
    if (place / "whole").read_text() != "new" or (place / "new").exists():
        return "a file that is renamed does not take the place of another"
    return None


def _others(place: Path) -> list[str]:
    command = [sys.executable, "-I", "-S", "-c", _OTHER, str(place)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PROBE_PATIENCE, check=True).stdout.split()


def _named(answers: list[str], wrong: str) -> list[str]:
    ways = ("a whole file", "a part of a file", "a database")
    return [way for way, answer in zip(ways, answers, strict=True) if answer == wrong]
