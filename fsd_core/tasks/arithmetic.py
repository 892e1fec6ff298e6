"""The task of the bundled pair, shipped with the program."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from fsd_core.models.model_pairs import ASSETS
from fsd_core.tasks.base import Example, Score, Task, cut_off
from fsd_core.tasks.generators import long_problems

ARITHMETIC_PROBLEMS = ASSETS / "bundled" / "arithmetic.jsonl"
ARITHMETIC_PROBLEM_COUNT = 600

# A final answer is alone on its line. Eighteen digits are more than any problem needs. The limit keeps a digit that a
# model repeats endlessly from being read as a number.
_ANSWER = re.compile(r"^#### +(-?[0-9]{1,18})[ \t\r]*$", re.MULTILINE)


class Arithmetic(Task):
    """Held-out word problems of :mod:`fsd_core.tasks.generators.long_problems`, scored by exact match."""

    name = "arithmetic"
    title = "Arithmetic word problems"

    def all_examples(self) -> tuple[Example, ...]:
        return _held_out()

    def score_answer(self, text: str, example: Example, stop_reason: str) -> Score:
        """Score the last line ``#### <integer>``. A text that was cut off before or in it is truncated."""
        answers = list(_ANSWER.finditer(text))
        # If the text was cut off right after a digit, more digits may have followed.
        if cut_off(stop_reason) and (not answers or answers[-1].end(1) == len(text)):
            return Score("truncated", None)
        answer = str(int(answers[-1][1])) if answers else None
        if example.reference is None:
            return Score("unscored", answer)
        return Score("correct" if answer == example.reference else "wrong", answer)


@cache
def _held_out() -> tuple[Example, ...]:
    with ARITHMETIC_PROBLEMS.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return tuple(Example(row["id"], row["prompt"], str(row["answer"])) for row in rows)


def write_held_out(path: Path = ARITHMETIC_PROBLEMS) -> int:
    """Write the held-out problems as JSON lines and return their number. Every call writes the same file."""
    problems = long_problems.held_out(ARITHMETIC_PROBLEM_COUNT)
    rows = (
        {
            "id": f"arithmetic-{i:04d}",
            "question": problem.question,
            "prompt": problem.prompt,
            "steps": problem.steps,
            "answer": problem.answer,
        }
        for i, problem in enumerate(problems)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return len(problems)


def held_out_questions() -> frozenset[str]:
    """Return the questions of the task, which training leaves out."""
    return frozenset(problem.question for problem in long_problems.held_out(ARITHMETIC_PROBLEM_COUNT))
