"""Programs, scored by running them: HumanEval and MBPP. What runs them is :mod:`.sandbox`."""

from __future__ import annotations

import re
from functools import cache

from fsd_core.benchmarks.tasks import sandbox
from fsd_core.benchmarks.tasks.base import Example, Score, Task, cut_off, rows

_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
# Where a bare completion of a function ends: at the next thing that stands at the margin.
_END = re.compile(r"\n(?=[^\s#)\]}])")


def block(text: str) -> str | None:
    """The first fenced block of code; ``None`` where there is none."""
    found = _BLOCK.search(text)
    return found[1] if found else None


class Programs(Task):
    """Right if the problem's own tests pass; a program that was cut off and fails is truncated."""

    def program(self, text: str, example: Example) -> str:
        """What is run: the model's code with the problem's tests behind it."""
        raise NotImplementedError

    def score(self, text: str, example: Example, stop_reason: str) -> Score:
        verdict = sandbox.run(self.program(text, example))
        if verdict == "passed":
            return Score("correct", verdict)
        return Score("truncated" if cut_off(stop_reason) and "```" not in text[3:] else "wrong", verdict)


@cache
def _by_id(file: str) -> dict[str, dict]:
    return {str(row["task_id"]): row for row in rows(file)}


class HumanEval(Programs):
    """HumanEval (Chen et al. 2021), pass@1, asked as instruction: the function's head in a block of code.

    Read from the answer: its first block of code, or the text itself as the body of the function, up to the next thing
    at the margin.
    """

    name = "humaneval"
    title = "HumanEval"
    files = ("humaneval/HumanEval.jsonl.gz",)

    def all_examples(self) -> tuple[Example, ...]:
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
            code = row["prompt"] + _END.split(text)[0]
        elif f"def {row['entry_point']}" not in code:
            code = row["prompt"] + code
        else:  # the imports of the head are the function's own
            code = row["prompt"].partition("def ")[0] + code
        return f"{code}\n{row['test']}\ncheck({row['entry_point']})\n"


class Mbpp(Programs):
    """MBPP (Austin et al. 2021), its test split (problems 11 to 510), asked in the authors' words without examples."""

    name = "mbpp"
    title = "MBPP"
    files = ("mbpp/mbpp.jsonl",)

    def all_examples(self) -> tuple[Example, ...]:
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
        row = _by_id(self.files[0])[example.id]
        code = block(text)
        return "\n".join([row["test_setup_code"], text if code is None else code, *row["test_list"]])
