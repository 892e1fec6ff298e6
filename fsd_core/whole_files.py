"""Files that appear completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to, which becomes ``path`` if the block succeeds and is removed otherwise.

    It reaches the disk first, so that a kill or a loss of power leaves what was there before or the new file, whole.
    Raises what the block or the system raises.
    """
    partial = path.with_name(f".{path.name}.part")
    try:
        yield partial
        flush(partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # some file systems cannot flush a folder: the file is there and whole
        flush(path.parent)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
