"""The objects of a file of JSON Lines, or of one array of JSON, each with its number."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fsd_core.tasks.custom.problems import Findings, LineError
from fsd_core.tasks.custom.unpacking import MOST_TASK_PROMPTS

LONGEST_TASK_LINE = 1_000_000
"""bytes of a line, characters of an array's element"""
MOST_LINES = 100_000
"""including empty ones"""
_SPACES = re.compile(r"[ \t\r\n]*")

Rows = Iterator[tuple[int, dict[str, Any]]]


def json_rows(data: bytes, findings: Findings) -> Rows:
    """Return the objects with their numbers. Whatever else is there is told."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data.lstrip().startswith(b"["):
        findings.unit = "row"
        return _elements(data, findings)
    return _lines(data, findings)


def _lines(data: bytes, findings: Findings) -> Rows:
    """Yield the lines that hold an object. Empty lines are skipped."""
    if (count := data.count(b"\n")) > MOST_LINES:
        findings.wrong(
            None, f"The file has {count:,} lines: expected at most {MOST_TASK_PROMPTS:,} prompts, one a line."
        )
        return
    reader = _Reader("one object a line")
    for number, raw in enumerate(data.split(b"\n"), 1):
        if len(raw) > LONGEST_TASK_LINE:
            findings.wrong(number, f"It has {len(raw):,} bytes: expected at most {LONGEST_TASK_LINE:,}.")
            continue
        try:
            if text := raw.decode().strip():
                value, end = reader.read(text, 0)
                if end < len(text):
                    raise reader.not_json("Extra data", end)
                yield number, reader.as_object(value)
        except UnicodeDecodeError as error:
            findings.wrong(number, f"It is not UTF-8 from byte {error.start + 1} on: save the file in that encoding.")
        except LineError as wrong:
            findings.wrong(number, str(wrong))


def _elements(data: bytes, findings: Findings) -> Rows:
    """Yield the elements that are objects. Reading ends at the first one that is not JSON."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        findings.wrong(None, f"The file is not UTF-8 from byte {error.start + 1} on: save it in that encoding.")
        return
    reader, number, position = _Reader("a list of objects"), 0, _after_spaces(text, text.index("[") + 1)
    separator = text[position : position + 1]
    if separator == "]":
        position += 1
    while separator != "]":
        number, start = number + 1, _after_spaces(text, position)
        if number > MOST_LINES:
            findings.wrong(None, f"The file has more than {MOST_LINES:,} rows: expected at most {MOST_TASK_PROMPTS:,}.")
            return
        try:
            value, position = reader.read(text, start)
        except LineError as wrong:
            findings.wrong(number, f"{wrong} Nothing behind it was read.")
            return
        try:
            if position - start > LONGEST_TASK_LINE:
                raise LineError(f"It has {position - start:,} characters: expected at most {LONGEST_TASK_LINE:,}.")
            yield number, reader.as_object(value)
        except LineError as wrong:
            findings.wrong(number, str(wrong))
        position = _after_spaces(text, position)
        separator, position = text[position : position + 1], position + 1
        if separator not in (",", "]"):
            findings.wrong(number, "Behind it stands neither a comma nor the end of the list: write one of them.")
            return
    if _after_spaces(text, position) < len(text):
        findings.wrong(None, "There is more behind the end of the list: expected one list, or one object a line.")


def _after_spaces(text: str, position: int) -> int:
    match = _SPACES.match(text, position)
    return match.end() if match else position


class _Reader:
    """Reads values of JSON one by one, and knows of each whether it has a flaw that Python's reader lets pass."""

    def __init__(self, expected: str) -> None:
        self._expected = expected
        self._decoder = json.JSONDecoder(object_pairs_hook=self._once, parse_constant=self._never)
        self._flaw = ""

    def read(self, text: str, start: int) -> tuple[Any, int]:
        """Return the value that begins at ``start``, and where it ends. Raises ``LineError``."""
        self._flaw = ""
        try:
            return self._decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise self.not_json(error.msg, error.pos) from None
        except (ValueError, RecursionError):
            raise LineError(
                "It cannot be read as JSON: a number in it is too long, or it is nested too deep."
            ) from None

    def not_json(self, what: str, position: int) -> LineError:
        """Return the error of a text that is not JSON from ``position`` on."""
        return LineError(f"It is not JSON ({what} at character {position + 1}): expected {self._expected}.")

    def as_object(self, value: Any) -> dict[str, Any]:
        """Return the value that was read last, which has to be an object without flaws. Raises ``LineError``."""
        if self._flaw:
            raise LineError(self._flaw)
        if not isinstance(value, dict):
            raise LineError('It is no object: expected one such as {"prompt": "…"}.')
        return value

    def _once(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            duplicate = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
            self._flaw = self._flaw or f"The field {duplicate[:40]!r} is there twice: leave one of them out."
        return row

    def _never(self, constant: str) -> None:
        self._flaw = self._flaw or f"{constant} is no value of JSON: write a number or a text."
