"""How much a test draws or simulates: a quick size in the gate, and the whole of it in ``make test-long``."""

from __future__ import annotations

import os

LONG = os.environ.get("FSD_TEST_LONG") == "1"
PATIENCE = 300.0
"""seconds after which a test gives up waiting for something that must come; what a busy machine takes is below it"""


def size(quick: int, long: int) -> int:
    """``quick`` in the gate, ``long`` in ``make test-long``: the same proof with less or more power."""
    return long if LONG else quick
