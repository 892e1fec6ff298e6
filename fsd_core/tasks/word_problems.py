"""Arithmetic word problems, scored by their final number."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fsd_core.models.model_pairs import ASSETS
from fsd_core.tasks.base import Example, Score, Split, Task, as_lines, cut_off, judged, rows
from fsd_core.tasks.readings import canonical, stated_number

MOST_SHOTS = 4
_ANNOTATION = re.compile(r"<<[^>]*>>")  # for a calculator; no model is asked to write them


class NumericTask(Task):
    """Scored by exact match of the final number, see :func:`~fsd_core.tasks.readings.stated_number`."""

    def score_answer(self, text: str, example: Example, stop_reason: str) -> Score:
        return judged(stated_number(text, example.reference, cut_off(stop_reason)), example, stop_reason)


class Gsm8k(NumericTask):
    """GSM8K test (Cobbe et al. 2021): four worked examples of the training split before each question."""

    name = "gsm8k"
    title = "GSM8K"
    published = 1319
    published_filter = r"#### (-?[0-9.,]+)"  # lm-eval's strict match, which is the authors' own
    files = ("gsm8k/test.jsonl", "gsm8k/train.jsonl")
    hub = tuple(
        Split(f"gsm8k/{split}.jsonl", "openai/gsm8k", "MIT", "main", split, as_lines) for split in ("test", "train")
    )

    def all_examples(self) -> tuple[Example, ...]:
        return _gsm8k()


def worked(row: dict) -> str:
    """Return the worked solution of a row of GSM8K as a model should write it. It ends in ``#### `` and the number."""
    return _ANNOTATION.sub("", row["answer"])


def after_examples(shots: Sequence[dict], question: str) -> str:
    """Return a question after rows of GSM8K with their worked solutions."""
    examples = "".join(f"Question: {row['question']}\nAnswer: {worked(row)}\n\n" for row in shots)
    return f"{examples}Question: {question}\nAnswer:"


@cache
def _gsm8k() -> tuple[Example, ...]:
    shots = rows("gsm8k/train.jsonl")[:MOST_SHOTS]
    return tuple(
        Example(
            id=f"gsm8k-{i:04d}",
            prompt=after_examples(shots, row["question"]),
            reference=canonical(row["answer"].rpartition("####")[2].strip()),
        )
        for i, row in enumerate(rows("gsm8k/test.jsonl"))
    )


class Aime(NumericTask):
    """The 30 problems of an American Invitational Mathematics Examination, zero-shot. Answers are 0 to 999."""

    published = 30

    def __init__(self, year: int, *splits: Split) -> None:
        self.name, self.title = f"aime-{year}", f"AIME {year}"
        self.hub, self.files = splits, tuple(split.file for split in splits)

    def all_examples(self) -> tuple[Example, ...]:
        return _aime(self.name, self.files)


def aime_examinations() -> tuple[Aime, ...]:
    """Return the examinations that the hub has, each with the files of its dataset."""
    first = Split("aime/aime2024.jsonl", "Maxwell-Jia/AIME_2024", "MIT", None, "train", as_lines)
    halves = (
        Split(f"aime/aime2025-{half}.jsonl", "opencompass/AIME2025", "MIT", f"AIME2025-{half}", "test", as_lines)
        for half in ("I", "II")
    )
    return Aime(2024, first), Aime(2025, *halves)


@cache
def _aime(name: str, files: tuple[str, ...]) -> tuple[Example, ...]:
    """Return the problems. The datasets of the years name their fields differently."""
    records = [{key.lower(): value for key, value in row.items()} for file in files for row in rows(file)]
    return tuple(
        Example(
            f"{name}-{i:02d}",
            f"{row.get('problem', row.get('question', '')).strip()}\n\nSolve the problem step by step. End with the "
            "answer, a whole number from 0 to 999, in \\boxed{}.",
            canonical(str(row["answer"])),
        )
        for i, row in enumerate(records)
    )


class WordProblems(NumericTask):
    """AddSub, SingleEq, MultiArith or SVAMP, asked zero-shot (Kojima et al. 2022) and scored like GSM8K."""

    def __init__(self, name: str, title: str) -> None:
        self.name, self.title = name, title
        self.files = (f"math_word/{title}/test.json",)

    def all_examples(self) -> tuple[Example, ...]:
        return _word_problems(self.name, self.files[0])


def zero_shot_prompt(problem: str) -> str:
    """Return the prompt of a problem without examples."""
    return f"{problem.strip()}\n\nSolve the problem step by step. End with a line '#### ' and the number."


@cache
def _word_problems(name: str, file: str) -> tuple[Example, ...]:
    return tuple(
        Example(f"{name}-{i:04d}", zero_shot_prompt(row["instruction"]), canonical(str(row["answer"])))
        for i, row in enumerate(rows(file))
    )


ARITHMETIC_PROBLEMS = ASSETS / "bundled" / "arithmetic.jsonl"

# A final answer is alone on its line. Eighteen digits are more than any problem needs. The limit keeps a digit that a
# model repeats endlessly from being read as a number.
_ANSWER = re.compile(r"^#### +(-?[0-9]{1,18})[ \t\r]*$", re.MULTILINE)


class Arithmetic(Task):
    """Held-out problems of the corpus that taught the bundled pair, scored by exact match."""

    name = "arithmetic"
    title = "Arithmetic word problems"

    def all_examples(self) -> tuple[Example, ...]:
        return _arithmetic()

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


def _shipped(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def _arithmetic() -> tuple[Example, ...]:
    return tuple(Example(row["id"], row["prompt"], str(row["answer"])) for row in _shipped(ARITHMETIC_PROBLEMS))


SHORT_PROBLEMS = ASSETS / "smollm2-135m" / "short_problems.jsonl"


class ShortProblems(NumericTask):
    """Generated problems, asked and scored like published ones."""

    name = "short-problems"
    title = "Short word problems"

    def all_examples(self) -> tuple[Example, ...]:
        return _short_problems()


@cache
def _short_problems() -> tuple[Example, ...]:
    return tuple(
        Example(row["id"], zero_shot_prompt(row["question"]), canonical(row["answer"]))
        for row in _shipped(SHORT_PROBLEMS)
    )
