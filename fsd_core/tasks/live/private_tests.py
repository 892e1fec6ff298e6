"""The hidden tests of LiveCodeBench: JSON, or JSON in a pickle that is compressed and written in base64.

A pickle is a program, so none is run here. Its operations are read one by one, and only a single text may
be among them.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import zlib
from typing import Any

from fsd_core.errors import UnfitTask

LARGEST_TESTS = 1 << 29
"""bytes of one problem's tests, unpacked"""
_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
_AROUND = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"}
"""operations that pickling a text writes around it"""


def read_tests(text: str, name: str) -> list[dict[str, Any]]:
    """Return the tests in ``text``. ``name``: the problem's. Raises ``InvalidSetting`` for any other form."""
    try:
        tests = json.loads(text)
    except ValueError:
        tests = _json(_pickled_text(_unpacked(text, name), name), name)
    except RecursionError:
        tests = None
    fields = ("input", "output", "testtype")
    if not isinstance(tests, list) or not all(
        isinstance(test, dict) and all(isinstance(test.get(field), str) for field in fields) for test in tests
    ):
        raise _refused(name, "they are no list of tests with input, output and testtype")
    return tests


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise _refused(name, "the text within them is no JSON") from None


def _unpacked(text: str, name: str) -> bytes:
    try:
        reader = zlib.decompressobj()
        content = reader.decompress(base64.b64decode(text, validate=True), LARGEST_TESTS + 1)
    except (binascii.Error, ValueError, zlib.error):
        raise _refused(name, "they are neither JSON nor compressed as the authors do it") from None
    if len(content) > LARGEST_TESTS:
        raise _refused(name, f"they unpack to more than {LARGEST_TESTS:,} bytes")
    if not reader.eof:
        raise _refused(name, "they end too soon")
    return content


def _pickled_text(content: bytes, name: str) -> str:
    """Return the text that a pickle holds, without unpickling. Raises ``InvalidSetting`` if it holds anything else."""
    texts: list[str] = []
    other, end = "", -1
    try:
        for operation, argument, position in pickletools.genops(content):
            if operation.name in _TEXTS and not texts:
                texts.append(str(argument))
            elif operation.name not in _AROUND:
                other = operation.name
                break
            end = position or 0
    except (ValueError, ArithmeticError, LookupError):
        raise _refused(name, "they hold no pickle that can be read") from None
    if other:
        raise _refused(name, f"their pickle does more than hold one text ({other})")
    if not texts or end != len(content) - 1:
        raise _refused(name, "their pickle holds no text, or something behind its end")
    return texts[0]


def _refused(name: str, reason: str) -> UnfitTask:
    return UnfitTask(
        f"The hidden tests of the problem {name[:80]!r} of LiveCodeBench cannot be used ({reason}): fetch "
        "the file again."
    )
