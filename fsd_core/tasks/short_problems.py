"""The task of the pair that was trained on word problems, shipped with the program."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from fsd_core.models.model_pairs import ASSETS
from fsd_core.tasks.base import Example
from fsd_core.tasks.final_numbers import canonical
from fsd_core.tasks.generators import one_step_problems
from fsd_core.tasks.word_problems import NumericTask, zero_shot_prompt

SHORT_PROBLEMS = ASSETS / "smollm2-135m" / "short_problems.jsonl"
SHORT_PROBLEM_COUNT = 200


class ShortProblems(NumericTask):
    """Held-out problems of :mod:`fsd_core.tasks.generators.one_step_problems`, asked and scored like published ones."""

    name = "short-problems"
    title = "Short word problems"

    def all_examples(self) -> tuple[Example, ...]:
        return _held_out()


@cache
def _held_out() -> tuple[Example, ...]:
    return tuple(Example(row["id"], zero_shot_prompt(row["question"]), canonical(row["answer"])) for row in _rows())


def held_out_questions() -> frozenset[str]:
    """Return the questions that training leaves out."""
    return frozenset(row["question"] for row in _rows())


def _rows() -> list[dict]:
    with SHORT_PROBLEMS.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write_held_out(path: Path = SHORT_PROBLEMS) -> int:
    """Write the held-out problems as JSON lines and return their number. Every call writes the same file."""
    problems = one_step_problems.held_out(SHORT_PROBLEM_COUNT)
    rows = (
        {
            "id": f"short-problems-{i:04d}",
            "question": problem.question,
            "steps": problem.steps,
            "answer": str(problem.answer),
        }
        for i, problem in enumerate(problems)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return len(problems)
