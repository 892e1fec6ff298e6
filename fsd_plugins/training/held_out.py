"""The generated problems that ship as tasks: written, and left out of every training."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fsd_core.tasks import as_lines
from fsd_core.tasks.word_problems import ARITHMETIC_PROBLEMS, SHORT_PROBLEMS
from fsd_plugins.training import generators
from fsd_plugins.training.generators import Problem

ARITHMETIC_PROBLEM_COUNT, SHORT_PROBLEM_COUNT = 600, 200


def _write(path: Path, name: str, problems: Sequence[Problem], told: Callable[[Problem], dict[str, Any]]) -> int:
    rows = (
        {"id": f"{name}-{i:04d}", "question": problem.question} | told(problem) for i, problem in enumerate(problems)
    )
    path.write_text(as_lines(rows), encoding="utf-8")
    return len(problems)


def write_long(path: Path = ARITHMETIC_PROBLEMS) -> int:
    """Write the problems of ``arithmetic`` as JSON lines and return their number. Every call writes the same file."""
    problems = generators.held_out_long(ARITHMETIC_PROBLEM_COUNT)
    return _write(path, "arithmetic", problems, lambda p: {"prompt": p.prompt, "steps": p.steps, "answer": p.answer})


def long_questions() -> frozenset[str]:
    """Return the questions of ``arithmetic``, which training leaves out."""
    return frozenset(problem.question for problem in generators.held_out_long(ARITHMETIC_PROBLEM_COUNT))


def write_short(path: Path = SHORT_PROBLEMS) -> int:
    """Write the problems of ``short-problems`` as JSON lines and return their number. Every call writes the same
    file."""
    problems = generators.held_out_short(SHORT_PROBLEM_COUNT)
    return _write(path, "short-problems", problems, lambda p: {"steps": p.steps, "answer": str(p.answer)})


def short_questions() -> frozenset[str]:
    """Return the questions of ``short-problems``, which training leaves out."""
    with SHORT_PROBLEMS.open(encoding="utf-8") as lines:
        return frozenset(json.loads(line)["question"] for line in lines)
