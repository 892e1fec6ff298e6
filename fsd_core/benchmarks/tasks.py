"""The prompts a run is measured on, and how an output is scored."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from fsd_core.benchmarks import arithmetic
from fsd_core.errors import InvalidSetting, UnknownName

Outcome = Literal["correct", "wrong", "truncated", "failed", "unscored"]

HELD_OUT = Path(__file__).parents[1] / "assets" / "bundled" / "arithmetic.jsonl"
HELD_OUT_SIZE = 600

# A final answer stands on a line of its own. Eighteen digits are more than any problem has, and keep a model that
# repeats one digit for ever from being read as a number.
_ANSWER = re.compile(r"^#### +(-?[0-9]{1,18})[ \t\r]*$", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """One prompt, with its answer where one is known."""

    id: str
    prompt: str
    reference: str | None


@dataclass(frozen=True)
class Score:
    """What came of one output; ``answer`` is what was read from the text."""

    outcome: Outcome
    answer: str | None


class Task(ABC):
    """A fixed, ordered list of prompts and a pure scorer."""

    name: str
    title: str

    @abstractmethod
    def all_examples(self) -> tuple[Example, ...]:
        """Every prompt, always in the same order: a position names the same prompt in every run."""

    @abstractmethod
    def score(self, text: str, reference: str | None, stop_reason: str) -> Score:
        """Judges ``text``, which ended for ``stop_reason``: eos, length or context."""

    @property
    def size(self) -> int:
        return len(self.all_examples())

    def examples(self, limit: int) -> tuple[Example, ...]:
        """The first ``limit`` prompts. Raises ``InvalidSetting`` if the task has fewer."""
        if not 1 <= limit <= self.size:
            raise InvalidSetting(
                f"The task '{self.name}' has {self.size} prompts: expected a limit from 1 to {self.size}."
            )
        return self.all_examples()[:limit]


class Arithmetic(Task):
    """Held-out word problems of :mod:`fsd_core.benchmarks.arithmetic`, scored by exact match."""

    name = "arithmetic"
    title = "Arithmetic word problems"

    def all_examples(self) -> tuple[Example, ...]:
        return _held_out()

    def score(self, text: str, reference: str | None, stop_reason: str) -> Score:
        """The last line ``#### <integer>`` is the answer; a text that was cut off before or in it is truncated."""
        answers = list(_ANSWER.finditer(text))
        cut_off = stop_reason in ("length", "context")
        # Where the text was cut right behind a digit, more digits may have been to come.
        if cut_off and (not answers or answers[-1].end(1) == len(text)):
            return Score("truncated", None)
        answer = str(int(answers[-1][1])) if answers else None
        if reference is None:
            return Score("unscored", answer)
        return Score("correct" if answer == reference else "wrong", answer)


@cache
def _held_out() -> tuple[Example, ...]:
    with HELD_OUT.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return tuple(Example(row["id"], row["prompt"], str(row["answer"])) for row in rows)


def write_held_out(path: Path = HELD_OUT) -> int:
    """Writes the held-out problems as JSON lines and returns how many; the same file on every call."""
    problems = arithmetic.held_out(HELD_OUT_SIZE)
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


TASKS: dict[str, Task] = {task.name: task for task in (Arithmetic(),)}


def get_task(name: str) -> Task:
    """The task of that name. Raises ``UnknownName``, which lists the known ones."""
    try:
        return TASKS[name]
    except KeyError:
        raise UnknownName(f"There is no task '{name}': expected one of {', '.join(TASKS)}.") from None
