"""Programs, scored by running them: HumanEval and MBPP. What runs them is :mod:`fsd_core.benchmarks.sandbox`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache

from fsd_core.benchmarks import sandbox
from fsd_core.benchmarks.tasks.base import Example, Score, Task, cut_off, rows

_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
# Where a bare completion of a function ends: at the next thing that stands at the margin.
_END = re.compile(r"\n(?=[^\s#)\]}])")


def block(text: str) -> str | None:
    """The first fenced block of code; ``None`` where there is none."""
    found = _BLOCK.search(text)
    return found[1] if found else None


@dataclass(frozen=True)
class Problem:
    """What the benchmark itself contributes to a judgement; see :func:`fsd_core.benchmarks.sandbox.judge`."""

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

    def problem(self, example: Example) -> Problem:
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
        return Score("truncated" if cut_off(stop_reason) and "```" not in text[3:] else "wrong", verdict)


@cache
def _by_id(file: str) -> dict[str, dict]:
    return {str(row["task_id"]): row for row in rows(file)}


class HumanEval(Programs):
    """HumanEval (Chen et al. 2021), pass@1, asked as instruction: the function's head in a block of code.

    Read from the answer: its first block of code, or the text itself as the body of the function, up to the next thing
    at the margin. What the prompt defines above the function is there either way, and the tests use the prompt's own.
    """

    name = "humaneval"
    title = "HumanEval"
    published = 164
    files = ("humaneval/HumanEval.jsonl.gz",)

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
        code = block(text)
        if code is None:
            return row["prompt"] + _END.split(text)[0]
        if f"def {row['entry_point']}" not in code:
            return row["prompt"] + code
        return _above(row) + code

    def problem(self, example: Example) -> Problem:
        row = _by_id(self.files[0])[example.id]
        tests = f"{row['test']}\ncheck({row['entry_point']})\n"
        return Problem(tests, _above(row), frozenset([row["entry_point"]]))


def _above(row: dict) -> str:
    """Imports and functions of a prompt of HumanEval that stand above the one to be written."""
    return row["prompt"].partition(f"def {row['entry_point']}(")[0]


class Mbpp(Programs):
    """MBPP (Austin et al. 2021), its test split (problems 11 to 510), asked in the authors' words without examples."""

    name = "mbpp"
    title = "MBPP"
    published = 500
    files = ("mbpp/mbpp.jsonl",)

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
        code = block(text)
        return text if code is None else code

    def problem(self, example: Example) -> Problem:
        """The setup comes behind the code: it uses what that defines (problem 367)."""
        row = _by_id(self.files[0])[example.id]
        return Problem("\n".join(row["test_list"]), row["test_setup_code"], _functions(row["code"]))


def _functions(code: str) -> frozenset[str]:
    """Names that a reference solution of MBPP defines. Problem 126 wants a function called ``sum``."""
    return frozenset(part.name for part in ast.parse(code).body if isinstance(part, ast.FunctionDef | ast.ClassDef))
