"""The number of torch's threads is after a test what it was before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads_kept(meanwhile: int | None = None) -> Iterator[None]:
    """Sets the number of threads back at the end; ``meanwhile``: how many there are until then."""
    before = torch.get_num_threads()
    if meanwhile is not None:
        torch.set_num_threads(meanwhile)
    try:
        yield
    finally:
        torch.set_num_threads(before)
