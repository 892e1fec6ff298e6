"""LiveCodeBench (Jain et al. 2024): problems of programming contests, with the day on which each appeared.

The hidden tests of LiveCodeBench: JSON, or JSON in a pickle that is compressed and written in base64.

A pickle is a program, so none is run here. Its operations are read one by one, and only a single text may
be among them.

The files of LiveCodeBench: what of a problem is asked, and where its tests are.

The files hold gigabytes of tests, so these stay there until a program is judged.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from fsd_core.errors import Contradiction, Malformed, Stale, UnfitTask
from fsd_core.settings import get_settings
from fsd_core.tasks.base import Example, HubFile, Task
from fsd_plugins.code import sandbox
from fsd_plugins.code.programs import Programs

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
    return _problems_of(get_settings().data_folder / file, file)


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
def _problems_of(path: Path, file: str) -> tuple[LiveProblem, ...]:
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


REPO = "livecodebench/code_generation_lite"
_REVISION = "0fe84c3912ea0c4d4a78037083943e8f0c4dd505"
SECONDS_PER_TEST = 6.0
"""as the authors' program gives"""

_INSTRUCTION = (
    "You are an expert Python programmer. You will be given a question (problem specification) and will generate a "
    "correct Python program that matches the specification and passes all tests."
)
_WITH_STARTER = (
    "You will use the following starter code to write the solution to the problem and enclose your code within "
    "delimiters."
)
_WITHOUT_STARTER = (
    "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on the sample "
    "inputs). Enclose your code within delimiters as follows. Ensure that when the python program runs, it reads the "
    "inputs, runs the algorithm and writes output to STDOUT."
)
# Modules whose names a program has without importing them, in the order of the authors' program.
_STARRED = [
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "operator", "io", "sys", "json", "builtins", "typing",
]  # fmt: skip
_NAMED = [name for name in _STARRED if name not in ("builtins", "typing")]
_PRELUDE = "\n".join(
    [*(f"from {name} import *" for name in _STARRED), f"import {', '.join(_NAMED)}", "sys.setrecursionlimit(50000)", ""]
)
_FENCE = re.compile(r"^.*```.*$", re.MULTILINE)
# The program reads the arguments itself, because its own interpreter does so in no time.
_CALLING = """
def _call_with_json(function, lines):
    import json
    return function(*map(json.loads, lines.split("\\n")))
"""
_CALL = """
import json
answer = _call_with_json({function}, {given!r})
assert (list(answer) if isinstance(answer, tuple) else answer) == json.loads({expected!r}), "another answer"
"""


@dataclass(frozen=True)
class _Release:
    """The problems that a release of the dataset added: a file of its own."""

    until: str
    """the last month of its problems"""
    problems: int
    size: int
    sha256: str


_RELEASES = (
    _Release("March 2024", 400, 1252609773, "2bd02b38beb48e8c46b5b9987095d999ff38cd8efc255ea5d58974317c48f63f"),
    _Release("May 2024", 111, 713377060, "095df7c5daf15f882c51a9deb84085cff1e073495a5dbcf95015a564d485f3a3"),
    _Release("July 2024", 101, 623360766, "28ed26cc83363ce3f1fe2d5fad9f8393077beb1907b167a31bd3b32f80801b79"),
    _Release("September 2024", 101, 1204644685, "d711138ddaebfcf5f8ec6a4283ee677298c0f5c5d374a235af92aaf0584510da"),
    _Release("January 2025", 167, 557699297, "7f77571c2a6df0c2a72a3277650309f67e01e0008e18117e624633df53f81214"),
    _Release("April 2025", 175, 134303240, "bb4c364f71921c4495a6ad15abe1a927350b720009f4933e2e71f8af0f6fd1f5"),
)
_NAME = re.compile(
    rf"livecodebench-v(?P<first>[1-{len(_RELEASES)}])(-v(?P<last>[1-{len(_RELEASES)}]))?"
    r"(:(?P<since>\d{4}-\d\d-\d\d)?\.\.(?P<until>\d{4}-\d\d-\d\d)?)?"
)


class LiveCodeBench(Programs):
    """Some releases of LiveCodeBench (Jain et al. 2024), code generation, pass@1, asked as its authors ask.

    The program is the last block of code of the answer. It is correct if it passes the public and the hidden tests.
    """

    def __init__(self, first: int, last: int, since: date | None = None, until: date | None = None) -> None:
        """``first`` and ``last`` release, from 1 on. ``since`` and ``until``: first and last day of the contests."""
        releases = _RELEASES[first - 1 : last]
        version = f"v{first}" + (f"-v{last}" if last > first else "")
        self.name = f"livecodebench-{version}"
        self.title = f"LiveCodeBench {version} (until {releases[-1].until})"
        self._days = (since, until)
        if since or until:
            days = f"{since or ''}..{until or ''}"
            self.name += f":{days}"
            self.title = f"LiveCodeBench {version}, {days}"
        else:
            self.published = sum(release.problems for release in releases)
        self.hub = tuple(_hub_file(number, _RELEASES[number - 1]) for number in range(first, last + 1))
        self.files = tuple(file.file for file in self.hub)

    @classmethod
    def named(cls, name: str) -> Task | None:
        """Return the task of a name such as ``livecodebench-v5-v6:2024-10-01..2025-01-31``. Either day may be left
        out."""
        match = _NAME.fullmatch(name)
        return _live_task(name, **match.groupdict()) if match else None

    def prompts(self) -> tuple[Example, ...]:
        examples = _examples(self.files, *self._days)
        if not examples:
            raise UnfitTask(f"The task '{self.name}' has no problem: expected days on which there are contests.")
        return examples

    def verdict(self, text: str, example: Example) -> str:
        code = last_block(text)
        if not code.strip():
            return "failed: no block of code"
        tests = tests_of(_by_id(self.files)[example.id])
        for number, (given, expected) in enumerate(tests.cases, start=1):
            verdict = _judge(_PRELUDE + code, tests, given, expected)
            if verdict != "passed":
                return f"{verdict[:170]} (test {number} of {len(tests.cases)})"
        return "passed"


@lru_cache(maxsize=100)
def _live_task(name: str, first: str, last: str | None, since: str | None, until: str | None) -> LiveCodeBench:
    try:
        days = [date.fromisoformat(day) if day else None for day in (since, until)]
    except ValueError:
        raise Malformed(f"The task '{name}' names no day: expected days such as 2025-01-31.") from None
    if (last is not None and last <= first) or (days[0] and days[1] and days[1] < days[0]):
        raise Contradiction(f"The task '{name}' ends before it begins: expected the earlier release and day first.")
    return LiveCodeBench(int(first), int(last or first), *days)


def live_code_bench() -> tuple[LiveCodeBench, ...]:
    """Return the tasks that are offered: what each release added, and all of it."""
    count = len(_RELEASES)
    return (*(LiveCodeBench(number, number) for number in range(1, count + 1)), LiveCodeBench(1, count))


def last_block(text: str) -> str:
    """Return the text between the last two lines with three backticks, as the authors read it; else nothing."""
    parts = _FENCE.split(text)
    return parts[-2].strip("\r\n") if len(parts) > 2 else ""


def same_output(printed: str, expected: str) -> bool:
    """Return whether a program printed what is expected, by the authors' rule.

    White space around the whole and around each line does not count. A line is right if it has the same characters, or
    if both are the same decimal numbers, exactly: there is no tolerance.
    """
    ours, theirs = ([line.strip() for line in text.strip().split("\n")] for text in (printed, expected))
    return len(ours) == len(theirs) and all(
        mine == right or _same_numbers(mine, right) for mine, right in zip(ours, theirs, strict=True)
    )


def _same_numbers(line: str, expected: str) -> bool:
    try:
        return [Decimal(word) for word in line.split()] == [Decimal(word) for word in expected.split()]
    except InvalidOperation:
        return False


def _judge(program: str, tests: LiveTests, given: str, expected: str) -> str:
    if not tests.function:
        printed = sandbox.printed_by(program, given, SECONDS_PER_TEST)
        wrong = "passed" if same_output(printed.text, expected) else "failed: it printed something else"
        return printed.failure or wrong
    function = f"Solution().{tests.function}" if "class Solution" in program else tests.function
    source = _CALL.format(function=function, given=given, expected=expected)
    return sandbox.judge(_CALLING + program, source, "", {"Solution", tests.function}, SECONDS_PER_TEST)


def _hub_file(number: int, release: _Release) -> HubFile:
    path = f"test{number if number > 1 else ''}.jsonl"
    return HubFile(f"livecodebench/{path}", REPO, "CC", path, _REVISION, release.size, release.sha256)


def _problems(files: tuple[str, ...]) -> list[LiveProblem]:
    return [problem for file in files for problem in problems_of(file)]


@cache
def _by_id(files: tuple[str, ...]) -> dict[str, LiveProblem]:
    return {problem.id: problem for problem in _problems(files)}


@cache
def _examples(files: tuple[str, ...], since: date | None, until: date | None) -> tuple[Example, ...]:
    return tuple(
        Example(problem.id, _prompt(problem), None, category=problem.difficulty)
        for problem in _problems(files)
        if (since or problem.day) <= problem.day <= (until or problem.day)
    )


def _prompt(problem: LiveProblem) -> str:
    told, code = (
        (_WITH_STARTER, problem.starter_code) if problem.starter_code else (_WITHOUT_STARTER, "# YOUR CODE HERE")
    )
    return (
        f"{_INSTRUCTION}\n\n### Question:\n{problem.question}\n\n### Format: {told}\n```python\n{code}\n```\n\n"
        "### Answer: (use the provided format with backticks)\n\n"
    )
