"""Programs, scored by running them in a sandbox: HumanEval, MBPP, and what they share with others."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from fsd_core.tasks.base import Example, Score, Split, Task, as_lines, cut_off, rows
from fsd_plugins.code import sandbox

_CODE = r"(?:(?:async )?def |class |import |from |@\w)"
# A language may stand behind a fence, then a file or a title, then the first line of code.
_FENCE = re.compile(
    rf"```[ \t]*(?:(?!{_CODE})[{{\w+.-]+}}?(?:[ \t]+(?!{_CODE})(?:[\w/]+\.py|\w+=[^\n`]*))?)?[ \t]*"
    rf"(?:\r?\n|(?={_CODE}))"
)
_TILDES = re.compile(r"^([ \t>]*)~~~", re.MULTILINE)
_QUOTED = re.compile(r"[ \t]*>[> \t]*")
_QUOTE = re.compile(r"^[ \t]*(?:> ?)+", re.MULTILINE)
_FUTURE = re.compile(r"^from __future__ import (?:\([^()]*\)|.*)", re.MULTILINE)
_MARKS = re.compile(r"```|\"\"\"|'''")
_MOST_FENCES = 20
"""within one string"""
_MARGIN = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])?[ \t]+")
_DEFINED = re.compile(r"^(?:async def|def|class) +(\w+)|^(?:from [\w.]+ )?import (.+)", re.MULTILINE)
# A bare completion of a function ends at the next unindented line.
_END = re.compile(r"\n(?=[^\s#)\]}])")
# Unindented lines that begin a program, and those that may follow within one.
_BEGINS = re.compile(r"@\w|(?:def|class|async def) \w|import \w|from [\w.]+ import\b|\w+ *=[^=]")
_WITHIN = re.compile(rf"{_BEGINS.pattern}|[#)\]}}]|(?:if|for|while|with) .*:|(?:else|try|finally):|(?:except|elif)\b")


def block(text: str, names: Iterable[str]) -> str | None:
    """Return the first fenced block of code that defines one of ``names``, else the first block, else ``None``.

    Other blocks that define or import what that one names are put before it: a helper, or the imports.
    """
    blocks, defines = _blocks(text), _definition(names)
    chosen = next((code for code in blocks if defines.search(code)), blocks[0] if blocks else None)
    if chosen is None:
        return None
    used = set(re.findall(r"\w+", chosen)) - _defined(chosen)
    helpers = [code for code in blocks if not defines.search(code) and _defined(code) & used]
    return "\n".join([*helpers, chosen])


def _blocks(text: str) -> list[str]:
    """Return what stands between fences, without the indentation of an item of a list or the marks of a quotation. A
    fence within a string of several lines (a docstring) ends nothing."""
    text, blocks, at = _TILDES.sub(r"\1```", text), [], 0
    while begun := _FENCE.search(text, at):
        ends = _ends(text, begun.end())
        code, margin = text[begun.end() : ends[0]], text[text.rfind("\n", 0, begun.start()) + 1 : begun.start()]
        code = _QUOTE.sub("", code) if _QUOTED.fullmatch(margin) else code
        blocks.append(textwrap.dedent(code) if _MARGIN.fullmatch(margin) else code)
        at = ends[1]
    return blocks


def _ends(text: str, start: int) -> tuple[int, int]:
    """Return where a block that starts there ends, and where its fence does: the first that is in no string, else the
    first of all, else the end of the text."""
    fences, quote = [], ""
    for mark in _MARKS.finditer(text, start):
        if mark[0] != "```":
            quote = "" if quote == mark[0] else quote or mark[0]
            continue
        fences.append(mark.span())
        if not quote:
            return fences[-1]
        if len(fences) == _MOST_FENCES:
            break
    return fences[0] if fences else (len(text), len(text))


def _defined(code: str) -> set[str]:
    """Return the names that code defines or imports at the margin."""
    found = (name or imported for name, imported in _DEFINED.findall(code))
    return {name for names in found for name in re.findall(r"\w+", names)}


def unfenced(text: str, names: Iterable[str]) -> str | None:
    """Return the program in a text without a fence that defines one of ``names`` unindented, or ``None``.

    It begins with the first import, assignment, function or class, and ends after the named one, where prose begins.
    """
    lines, defines = text.splitlines(), _definition(names)
    named = next((i for i, line in enumerate(lines) if defines.match(line)), None)
    if named is None:
        return None
    start = next(i for i, line in enumerate(lines) if _BEGINS.match(line))
    following = range(named + 1, len(lines))
    end = next((i for i in following if lines[i][:1].strip() and not _WITHIN.match(lines[i])), len(lines))
    return "\n".join(lines[start:end]) + "\n"


def _definition(names: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of an unindented function or class with one of the names."""
    any_of = "|".join(re.escape(name) for name in sorted(names))
    return re.compile(rf"^(?:async def|def|class) +(?:{any_of})\b", re.MULTILINE)


@dataclass(frozen=True)
class CodeProblem:
    """The benchmark's own part of a judgement. See :func:`fsd_plugins.code.sandbox.judge`."""

    tests: str
    given: str
    entry_points: frozenset[str]


class Programs(Task):
    """Correct if the problem's own tests pass. A program that was cut off and fails is truncated.

    If programs cannot be confined, the task is unavailable and its prompts are refused.
    """

    def program(self, text: str, example: Example) -> str:
        """Return the model's code, as it is run."""
        raise NotImplementedError

    def problem(self, example: Example) -> CodeProblem:
        """Return how that code is judged."""
        raise NotImplementedError

    def verdict(self, text: str, example: Example) -> str:
        """Return the verdict of :func:`fsd_plugins.code.sandbox.judge` on the code in a text."""
        problem, code = self.problem(example), self.program(text, example)
        futures = _FUTURE.findall(code)
        program = "\n".join([*futures, _FUTURE.sub("", code)]) if futures else code
        return sandbox.judge(program, problem.tests, problem.given, problem.entry_points)

    def prompts(self) -> tuple[Example, ...]:
        """Return every prompt of the benchmark's file."""
        raise NotImplementedError

    def all_examples(self) -> tuple[Example, ...]:
        sandbox.require_sandbox()  # here, so that a run is refused before it starts
        return self.prompts()

    @property
    def possible(self) -> bool:
        return sandbox.refusal() is None

    def score_answer(self, text: str, example: Example, stop_reason: str) -> Score:
        verdict = self.verdict(text, example)
        if verdict == "passed":
            return Score("correct", verdict)
        fences = text.count("```")
        complete = not cut_off(stop_reason) or (fences > 0 and fences % 2 == 0)  # the last block was closed
        return Score("wrong" if complete else "truncated", verdict)


@cache
def _by_id(file: str) -> dict[str, dict]:
    return {str(row["task_id"]): row for row in rows(file)}


class HumanEval(Programs):
    """HumanEval (Chen et al. 2021), pass@1, asked as an instruction: the function's head in a block of code.

    The program is the answer's block of code with the function, else its first block. Without a block, it is the
    unindented function with the imports and definitions around it, else the text itself as the function's body, up to
    the next unindented line. Each includes what the prompt defines above the function, and the tests use the prompt's
    own version of that.
    """

    name = "humaneval"
    title = "HumanEval"
    published = 164
    files = ("humaneval/HumanEval.jsonl.gz",)
    hub = (Split(files[0], "openai/openai_humaneval", "MIT", None, "test", as_lines),)

    def prompts(self) -> tuple[Example, ...]:
        return tuple(
            Example(
                row["task_id"],
                f"Complete this Python function. Answer with the whole function in one block of code.\n\n"
                f"```python\n{row['prompt'].strip()}\n```",
                row["canonical_solution"],
            )
            for row in rows(self.files[0])
        )

    def program(self, text: str, example: Example) -> str:
        row = _by_id(self.files[0])[example.id]
        names = [row["entry_point"]]
        code = block(text, names)
        if code is None:
            is_body = text.lstrip("\r\n")[:1].isspace()  # whatever follows
            code = None if is_body else unfenced(text, names)
            return row["prompt"] + _END.split(text)[0] if code is None else _above(row) + code
        return (_above(row) if _definition(names).search(code) else row["prompt"]) + code

    def problem(self, example: Example) -> CodeProblem:
        row = _by_id(self.files[0])[example.id]
        tests = f"{row['test']}\ncheck({row['entry_point']})\n"
        return CodeProblem(tests, _above(row), frozenset([row["entry_point"]]))


def _above(row: dict) -> str:
    """Return the imports and functions above the function to be written in a prompt of HumanEval."""
    return row["prompt"].partition(f"def {row['entry_point']}(")[0]


class Mbpp(Programs):
    """MBPP (Austin et al. 2021), its test split (problems 11 to 510), zero-shot in the authors' wording."""

    name = "mbpp"
    title = "MBPP"
    published = 500
    files = ("mbpp/mbpp.jsonl",)
    hub = (
        Split(files[0], "google-research-datasets/mbpp", "CC BY 4.0", "full", "prompt+test+validation+train", as_lines),
    )

    def prompts(self) -> tuple[Example, ...]:
        return tuple(
            Example(
                str(row["task_id"]),
                f"You are an expert Python programmer, and here is your task: {row['text']} Your code should pass "
                "these tests:\n\n" + "\n".join(row["test_list"]),
                row["code"],
            )
            for row in rows(self.files[0])
            if 11 <= row["task_id"] <= 510
        )

    def program(self, text: str, example: Example) -> str:
        names = self.problem(example).entry_points
        code = block(text, names)
        return (unfenced(text, names) or text) if code is None else code

    def problem(self, example: Example) -> CodeProblem:
        """Return the problem. Its setup runs after the code and uses the code's definitions (problem 367)."""
        row = _by_id(self.files[0])[example.id]
        return CodeProblem("\n".join(row["test_list"]), row["test_setup_code"], _functions(row["code"]))


def _functions(code: str) -> frozenset[str]:
    """Return the names that a reference solution of MBPP defines. Problem 126 wants a function called ``sum``."""
    return frozenset(part.name for part in ast.parse(code).body if isinstance(part, ast.FunctionDef | ast.ClassDef))
