"""The made-up problems that an adapter learns from: right, whole, and never those of the task that it is tried on."""

from __future__ import annotations

import json
import random
import re
from fractions import Fraction
from itertools import islice
from pathlib import Path

import pytest

from fsd_core.models.model_pairs import ADAPTED, MODEL_PAIRS
from fsd_core.tasks import Score, get_task
from fsd_core.tasks.generators import PROBLEM_KINDS, PROBLEMS_SHOWN, generate_short, stream_short
from fsd_core.tasks.readings import canonical, final_number
from fsd_core.tasks.word_problems import (
    SHORT_PROBLEM_COUNT,
    SHORT_PROBLEMS,
    held_out_short_questions,
    write_short_held_out,
    zero_shot_prompt,
)

TASK = get_task("short-problems")
ADAPTER = MODEL_PAIRS[ADAPTED].adapter


@pytest.mark.wide
def test_every_equation_holds_and_the_last_one_gives_the_answer() -> None:
    rng = random.Random(0)
    for _ in range(4000):
        problem = generate_short(rng)
        for step in problem.steps:
            left, result = step.split(" = ")
            x, sign, y = left.split()
            a, b = Fraction(x), Fraction(y)
            assert {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign] == Fraction(result) > 0
        assert problem.steps[-1].endswith(f"= {problem.answer}")


def test_the_numbers_of_the_steps_are_told_in_the_question() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        problem = generate_short(rng)
        told = set(re.findall(r"\d+(?:\.\d+)?", problem.question))
        results = {step.rpartition("= ")[2] for step in problem.steps}
        for step in problem.steps:
            x, _, y = step.partition(" = ")[0].split()
            assert {x, y} <= told | results
        assert "{" not in problem.question
        assert problem.question[0].isupper() or problem.question[0].isdigit()


@pytest.mark.wide
def test_every_shape_comes_up_and_no_solution_is_misread() -> None:
    steps = set()
    for problem, solution in islice(stream_short(2), 3000):
        steps.add(tuple(re.sub(r"[\d.]+", "n", step) for step in problem.steps))
        assert final_number(solution) == canonical(str(problem.answer))
    assert len(steps) == len(
        {tuple(re.sub(r"\b[a-dr]\b", "n", s) + " = n" for s in shape.steps) for shape in PROBLEM_KINDS}
    )
    assert list(islice(stream_short(2), 20)) == list(islice(stream_short(2), 20))


@pytest.mark.wide
def test_the_shipped_problems_are_the_same_whenever_they_are_written(tmp_path: Path) -> None:
    assert write_short_held_out(tmp_path / "again.jsonl") == SHORT_PROBLEM_COUNT == TASK.size
    assert (tmp_path / "again.jsonl").read_bytes() == SHORT_PROBLEMS.read_bytes()
    assert (
        len(held_out_short_questions()) == len({example.id for example in TASK.all_examples()}) == SHORT_PROBLEM_COUNT
    )


@pytest.mark.wide
def test_the_adapter_that_ships_saw_none_of_them() -> None:
    assert ADAPTER is not None
    trained = json.loads((ADAPTER / "training.json").read_text())
    schedule = trained["plan"]["schedule"]
    assert trained["seed"] == 0
    # 64 are only looked at, and problems are drawn 16 batches at a time; few of GSM8K are too long and drawn in vain.
    assert 64 + schedule["batch"] * (schedule["steps"] + 16) < PROBLEMS_SHOWN
    shown = [problem.question for problem, _ in islice(stream_short(0), PROBLEMS_SHOWN)]
    assert not held_out_short_questions() & set(shown)
    # So what is left out from now on changes nothing in how that adapter was made.
    left_out = stream_short(0, without=held_out_short_questions())
    assert [problem.question for problem, _ in islice(left_out, PROBLEMS_SHOWN)] == shown


def test_a_stream_leaves_questions_out() -> None:
    first = [problem.question for problem, _ in islice(stream_short(3), 5)]
    rest = stream_short(3, without=frozenset(first[:1]))
    assert not {problem.question for problem, _ in islice(rest, 200)} & set(first[:1])


def test_the_task_asks_and_scores_as_the_published_problems() -> None:
    assert TASK.available
    rows = [json.loads(line) for line in SHORT_PROBLEMS.read_text().splitlines()]
    for row, example in zip(rows, TASK.all_examples(), strict=True):
        assert example.prompt == zero_shot_prompt(row["question"])
        text = " ".join(row["steps"]) + f"\n#### {row['answer']}"
        assert TASK.score(text, example, "eos") == Score("correct", example.reference)
        assert TASK.score("#### -1", example, "eos") == Score("wrong", "-1")
