"""The files of LiveCodeBench: what of a problem is asked, and where its tests are.

The files hold gigabytes of tests, so these stay there until a program is judged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from fsd_core.errors import Stale, UnfitTask
from fsd_core.settings import get_settings
from fsd_core.tasks.live.private_tests import read_tests

LONGEST_LINE = 1 << 28
"""bytes of one problem"""
_FIELDS = {
    "id": "question_id", "question": "question_content", "starter_code": "starter_code", "difficulty": "difficulty",
}  # fmt: skip
_TESTS = ("public_test_cases", "private_test_cases")


@dataclass(frozen=True)
class LiveProblem:
    """A problem of a contest, without its tests."""

    id: str
    question: str
    starter_code: str
    """the head of the class that is to be written; empty for a program that reads standard input"""
    difficulty: str
    day: date
    """when its contest was held"""
    file: str
    """below the data folder"""
    offset: int
    """of its line in the file, in bytes"""


@dataclass(frozen=True)
class LiveTests:
    """The tests of a problem, public ones first."""

    function: str
    """the function that is called, a method of ``Solution`` where there is one; empty for a program that prints"""
    cases: tuple[tuple[str, str], ...]
    """inputs and expected outputs: JSON values, one argument a line, or the texts of standard input and output"""


def problems_of(file: str) -> tuple[LiveProblem, ...]:
    """Return the problems in a file, in its order. Raises ``InvalidSetting`` if it is missing or cannot be read."""
    return _problems(get_settings().data_folder / file, file)


def tests_of(problem: LiveProblem) -> LiveTests:
    """Return a problem's tests. Raises ``InvalidSetting`` if they cannot be used."""
    path = get_settings().data_folder / problem.file
    row = next((row for row, _ in _rows(path, problem.file, problem.offset)), None)
    if row is None or row.get("question_id") != problem.id:
        raise Stale(f"The file {path} has changed since it was read: start this program again.")
    tests = [test for field in _TESTS for test in read_tests(row[field], problem.id)]
    function = _metadata(row).get("func_name") or ""
    if not tests or (function and not (isinstance(function, str) and function.isidentifier())):
        raise UnfitTask(f"The problem '{problem.id}' in {path} has no tests, or names no function: fetch it again.")
    return LiveTests(function, tuple((test["input"], test["output"]) for test in tests))


@cache
def _problems(path: Path, file: str) -> tuple[LiveProblem, ...]:
    problems = tuple(_problem(row, file, offset) for row, offset in _rows(path, file, 0))
    if not problems:
        raise UnfitTask(f"The benchmark file {path} is empty: fetch it again.")
    return problems


def _problem(row: dict[str, Any], file: str, offset: int) -> LiveProblem:
    try:
        day = date.fromisoformat(row["contest_date"][:10])
        texts = {name: row[field] for name, field in _FIELDS.items()}
        if not all(isinstance(text, str) for text in (*texts.values(), *(row[field] for field in _TESTS))):
            raise TypeError
    except (KeyError, TypeError, ValueError) as error:
        raise UnfitTask(
            f"A problem in {file} is not as LiveCodeBench's authors publish it ({type(error).__name__}): fetch the "
            "file again."
        ) from None
    return LiveProblem(**texts, day=day, file=file, offset=offset)


def _metadata(row: dict[str, Any]) -> dict[str, Any]:
    try:
        metadata = json.loads(row.get("metadata") or "{}")
    except (TypeError, ValueError, RecursionError):
        metadata = None
    return metadata if isinstance(metadata, dict) else {}


def _rows(path: Path, file: str, offset: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the rows of a file from ``offset`` on, each with its own offset."""
    try:
        with path.open("rb") as lines:
            lines.seek(offset)
            while line := lines.readline(LONGEST_LINE + 1):
                row = json.loads(line) if len(line) <= LONGEST_LINE else None
                if not isinstance(row, dict):
                    raise ValueError
                yield row, offset
                offset += len(line)
    except FileNotFoundError:
        raise UnfitTask(
            f"The file {file} is not in {path.parents[file.count('/')]}: `python -m fsd_core fetch` gets it."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UnfitTask(
            f"The benchmark file {path} cannot be read ({type(error).__name__}): fetch it again from its authors."
        ) from error
