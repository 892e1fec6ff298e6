"""Programs, scored by running them: HumanEval and MBPP. What runs them is :mod:`fsd_core.sandbox`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from fsd_core import sandbox
from fsd_core.tasks.base import Example, Score, Split, Task, as_lines, cut_off, rows

_BLOCK = re.compile(r"```[ \t]*(?:[\w+-]+[ \t]*)?\r?\n(.*?)(?:```|\Z)", re.DOTALL)
# Where a bare completion of a function ends: at the next thing that stands at the margin.
_END = re.compile(r"\n(?=[^\s#)\]}])")
# What begins a program at the margin, and what else may stand there within one.
_BEGINS = re.compile(r"@\w|(?:def|class|async def) \w|import \w|from [\w.]+ import\b|\w+ *=[^=]")
_WITHIN = re.compile(rf"{_BEGINS.pattern}|[#)\]}}]|(?:if|for|while|with) .*:|(?:else|try|finally):|(?:except|elif)\b")


def block(text: str, names: Iterable[str]) -> str | None:
    """The first fenced block of code that defines one of ``names``, else the first; ``None`` where there is none."""
    blocks, defines = _BLOCK.findall(text), _definition(names)
    return next((code for code in blocks if defines.search(code)), blocks[0] if blocks else None)


def unfenced(text: str, names: Iterable[str]) -> str | None:
    """The program in a text without a fence that defines one of ``names`` at the margin; ``None`` where none is.

    It begins with the first import, assignment, function or class, and ends behind the named one where prose begins.
    """
    lines, defines = text.splitlines(), _definition(names)
    named = next((i for i, line in enumerate(lines) if defines.match(line)), None)
    if named is None:
        return None
    start = next(i for i, line in enumerate(lines) if _BEGINS.match(line))
    behind = range(named + 1, len(lines))
    end = next((i for i in behind if lines[i][:1].strip() and not _WITHIN.match(lines[i])), len(lines))
    return "\n".join(lines[start:end]) + "\n"


def _definition(names: Iterable[str]) -> re.Pattern[str]:
    """A function or class of one of the names, at the margin."""
    any_of = "|".join(re.escape(name) for name in sorted(names))
    return re.compile(rf"^(?:async def|def|class) +(?:{any_of})\b", re.MULTILINE)


@dataclass(frozen=True)
class CodeProblem:
    """What the benchmark itself contributes to a judgement; see :func:`fsd_core.sandbox.judge`."""

    tests: str
    given: str
    entry_points: frozenset[str]


class Programs(Task):
    """Right if the problem's own tests pass; a program that was cut off and fails is truncated.

    Where programs cannot be confined the task is not available, and its prompts are refused.
    """

    def program(self, text: str, example: Example) -> str:
        """The model's code, as it is run."""
        raise NotImplementedError

    def problem(self, example: Example) -> CodeProblem:
        """How that code is judged."""
        raise NotImplementedError

    def prompts(self) -> tuple[Example, ...]:
        """Every prompt of the benchmark's file."""
        raise NotImplementedError

    def all_examples(self) -> tuple[Example, ...]:
        sandbox.require_sandbox()  # here, so that work is refused before it begins
        return self.prompts()

    @property
    def possible(self) -> bool:
        return sandbox.refusal() is None

    def score(self, text: str, example: Example, stop_reason: str) -> Score:
        problem = self.problem(example)
        verdict = sandbox.judge(self.program(text, example), problem.tests, problem.given, problem.entry_points)
        if verdict == "passed":
            return Score("correct", verdict)
        fences = text.count("```")
        complete = not cut_off(stop_reason) or (fences > 0 and fences % 2 == 0)  # the last block was closed
        return Score("wrong" if complete else "truncated", verdict)


@cache
def _by_id(file: str) -> dict[str, dict]:
    return {str(row["task_id"]): row for row in rows(file)}


class HumanEval(Programs):
    """HumanEval (Chen et al. 2021), pass@1, asked as instruction: the function's head in a block of code.

    Read from the answer: its block of code with the function, else its first one; without any, the function where it
    stands at the margin, with what is imported and defined around it; else the text itself as the function's body, up
    to the next thing at the margin. What the prompt defines above the function is there either way, and the tests use
    the prompt's own.
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
            is_body = text.lstrip("\r\n")[:1].isspace()  # whatever else it goes on to write
            code = None if is_body else unfenced(text, names)
            return row["prompt"] + _END.split(text)[0] if code is None else _above(row) + code
        return (_above(row) if _definition(names).search(code) else row["prompt"]) + code

    def problem(self, example: Example) -> CodeProblem:
        row = _by_id(self.files[0])[example.id]
        tests = f"{row['test']}\ncheck({row['entry_point']})\n"
        return CodeProblem(tests, _above(row), frozenset([row["entry_point"]]))


def _above(row: dict) -> str:
    """Imports and functions of a prompt of HumanEval that stand above the one to be written."""
    return row["prompt"].partition(f"def {row['entry_point']}(")[0]


class Mbpp(Programs):
    """MBPP (Austin et al. 2021), its test split (problems 11 to 510), asked in the authors' words without examples."""

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
        """The setup comes behind the code: it uses what that defines (problem 367)."""
        row = _by_id(self.files[0])[example.id]
        return CodeProblem("\n".join(row["test_list"]), row["test_setup_code"], _functions(row["code"]))


def _functions(code: str) -> frozenset[str]:
    """Names that a reference solution of MBPP defines. Problem 126 wants a function called ``sum``."""
    return frozenset(part.name for part in ast.parse(code).body if isinstance(part, ast.FunctionDef | ast.ClassDef))
