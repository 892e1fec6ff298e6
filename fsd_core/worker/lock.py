"""One process per thing: an exclusive lock on a file, which the kernel releases when its holder dies, however it dies.

The holder writes into the file who it is and what it is doing. A killed holder's words stay there, so that the next
holder knows what was going on when it died.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

_held: WeakSet[Lock] = WeakSet()


class Lock:
    """A lock that this process holds."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.last_words = _read(descriptor)
        """what the holder before this one had signed last; ``{}`` if it ended properly, or never signed"""
        os.ftruncate(descriptor, 0)
        _held.add(self)

    def sign(self, **about: Any) -> None:
        """Writes who holds the lock, ``pid`` at least, in one system call: a kill leaves the old words or the new."""
        size = os.fstat(self.descriptor).st_size
        os.pwrite(self.descriptor, json.dumps(about).encode().ljust(size), 0)

    def close(self) -> None:
        """Gives the lock back, with nothing left to say."""
        _held.discard(self)
        os.ftruncate(self.descriptor, 0)
        os.close(self.descriptor)


def _leave_to_parent() -> None:
    """In a process that was forked: a lock that it kept open would outlive its holder."""
    for lock in list(_held):
        with suppress(OSError):
            os.close(lock.descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def acquire(path: Path, patience: float = 1.0) -> Lock | None:
    """Locks the file; ``None`` while another process holds it.

    ``patience`` is in seconds: a reader of :func:`holder` has the lock for a moment too.
    """
    deadline = time.monotonic() + patience
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, descriptor):
                return Lock(descriptor)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(0.05)
        os.close(descriptor)


def holder(path: Path) -> dict[str, Any] | None:
    """What the holder of the lock has written; ``{}`` if it has not yet; ``None`` if nobody holds it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor)
    finally:
        os.close(descriptor)
    return None


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the path names the open file: the last holder may have removed it while others waited."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read(descriptor: int) -> dict[str, Any]:
    """The words in the file; ``{}`` where a crash of the machine has left something else."""
    try:
        words = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    except ValueError:
        return {}
    return words if isinstance(words, dict) else {}
