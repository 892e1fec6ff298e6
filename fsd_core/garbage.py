"""When Python looks for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Do not look for garbage in the block: what modules define as they are imported stays until the end.

    Python otherwise scans all of it again and again. That takes a fifth of the time of importing torch or Gradio.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
