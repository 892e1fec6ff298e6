"""One process per thing: an exclusive lock on a file, which the kernel frees when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any


def acquire(path: Path, patience: float = 1.0) -> int | None:
    """Locks the file and returns its descriptor, which is to be kept open; ``None`` while another process holds it.

    ``patience`` is in seconds: a reader of :func:`holder` has the lock for a moment too.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)  # the words of a dead holder
            return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(0.05)


def sign(descriptor: int, **about: Any) -> None:
    """Writes into the locked file who holds it; ``pid`` at least."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(about).encode(), 0)


def holder(path: Path) -> dict[str, Any] | None:
    """What the holder of the lock has written; ``{}`` if it has not yet; ``None`` if nobody holds it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 4096, 0)
        return json.loads(text) if text else {}
    finally:
        os.close(descriptor)
    return None
