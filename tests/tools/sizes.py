"""How much a test draws or simulates: a quick size in the gate, and the whole of it in ``make test-long``."""

from __future__ import annotations

import os

import pytest

LONG = os.environ.get("FSD_TEST_LONG") == "1"
PATIENCE = 300.0
"""seconds after which a test gives up waiting for something that must come; what a busy machine takes is below it"""


def size(quick: int, long: int) -> int:
    """``quick`` in the gate, ``long`` in ``make test-long``: the same proof with less or more power."""
    return long if LONG else quick


def sized(quick: int, long: int) -> list[object]:
    """Parameters of a test: so many in the gate, and once more with as many as are for ``make test-long``."""
    return [quick, pytest.param(long, marks=pytest.mark.long)]
