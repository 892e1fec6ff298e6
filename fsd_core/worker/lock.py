"""An exclusive lock on a file. The kernel releases it when its holder dies, for whatever reason.

The holder writes its identity and current work into the file. The entry of a killed holder stays there, so the next
holder knows what was in progress.
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

_locks: WeakSet[Lock] = WeakSet()


class Lock:
    """A lock that this process holds."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.previous_metadata = _read(descriptor)
        """last metadata of the previous holder; ``{}`` if it ended properly or never wrote any"""
        os.ftruncate(descriptor, 0)
        _locks.add(self)

    def write_metadata(self, **metadata: Any) -> None:
        """Write metadata of the holder, ``pid`` at least, in one system call. A kill leaves either the old or the new
        entry."""
        size = os.fstat(self.descriptor).st_size
        os.pwrite(self.descriptor, json.dumps(metadata).encode().ljust(size), 0)

    def close(self) -> None:
        """Clear the metadata and release the lock."""
        _locks.discard(self)
        os.ftruncate(self.descriptor, 0)
        os.close(self.descriptor)


def _close_in_child() -> None:
    """Close inherited locks in a forked process. Otherwise a lock would outlive its holder."""
    for lock in list(_locks):
        with suppress(OSError):
            os.close(lock.descriptor)
    _locks.clear()


os.register_at_fork(after_in_child=_close_in_child)


def acquire(path: Path, patience: float = 1.0) -> Lock | None:
    """Lock the file, or return ``None`` while another process holds it.

    ``patience`` is in seconds, because a reader in :func:`holder` also has the lock for a moment.
    """
    deadline = time.monotonic() + patience
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(path, descriptor):
                return Lock(descriptor)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(0.05)
        os.close(descriptor)


def holder(path: Path) -> dict[str, Any] | None:
    """Return the metadata of the lock's holder, ``{}`` before it wrote any, or ``None`` if nobody holds the lock."""
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


def _is_same_file(path: Path, descriptor: int) -> bool:
    """Whether the path still names the open file. The last holder may have removed it while others waited."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read(descriptor: int) -> dict[str, Any]:
    """Return the metadata in the file, or ``{}`` if a crash of the machine has left something else."""
    try:
        metadata = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}
