"""LiveCodeBench as tasks: its releases one by one and together, and the problems of some days among them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import cache, lru_cache

from fsd_core import sandbox
from fsd_core.errors import Contradiction, Malformed, UnfitTask
from fsd_core.tasks.base import Example
from fsd_core.tasks.benchmark_files import HubFile
from fsd_core.tasks.code import Programs
from fsd_core.tasks.live.problem_files import LiveProblem, LiveTests, problems_of, tests_of

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


def live_task(name: str) -> LiveCodeBench | None:
    """Return the task of a name such as ``livecodebench-v5-v6:2024-10-01..2025-01-31``; ``None`` for another name.

    Either day may be left out. Raises ``InvalidSetting`` for days and releases that there cannot be.
    """
    match = _NAME.fullmatch(name)
    return _live_task(name, **match.groupdict()) if match else None


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
