"""How much a test draws or simulates: a quick size in the gate, and the whole of it in ``make test-long``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")
LONG = os.environ.get("FSD_TEST_LONG") == "1"
PATIENCE = 300.0
"""seconds after which a test gives up waiting for something that must come; what a busy machine takes is below it"""


def size(quick: int, long: int) -> int:
    """``quick`` in the gate, ``long`` in ``make test-long``: the same proof with less or more power."""
    return long if LONG else quick


def some(values: Iterable[T], *kept: T) -> list[object]:
    """Parameters of a test: the ``kept`` in the gate, and the others in ``make test-all``. A kept value that is not
    among the others is a mistake."""
    found = list(values)
    assert all(value in found for value in kept), kept
    return [value if value in kept else _wide(value) for value in found]


def sized(quick: int, long: int) -> list[object]:
    """Parameters of a test: so many in the gate, and once more with as many as are for ``make test-long``."""
    return [quick, pytest.param(long, marks=pytest.mark.long)]


def _wide(value: object) -> object:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.wide)
