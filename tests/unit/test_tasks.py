from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from fsd_core.config import RunConfig
from fsd_core.errors import OutOfRange, UnknownName
from fsd_core.tasks import Example, Score, Task, generators, get_task
from fsd_core.tasks.word_problems import ARITHMETIC_PROBLEM_COUNT, ARITHMETIC_PROBLEMS, write_long_held_out

TASK = get_task("arithmetic")
SEVEN = Example("x", "", "7")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (" First, 3 + 4 = 7. So the answer is 7.\n#### 7", "7"),
        ("#### 7\n", "7"),
        ("#### 7 \r\n", "7"),
        ("####   7", "7"),
        ("#### -7", "-7"),
        ("#### 007", "7"),
        ("#### -0", "0"),
        ("#### 3\n#### 7", "7"),  # the last one counts
        ("#### 7\nQuestion: Ava has 3 eggs.\nAnswer: First, 3", "7"),
        ("#### 7\n#### 8.5", "7"),  # only integers are answers
        ("#### 7.0", None),
        ("#### 7,000", None),
        ("#### 7 apples", None),
        ("#### 7 8", None),
        ("#### seven", None),
        ("#### ٧", None),  # a digit of another script
        ("####7", None),
        ("### 7", None),
        ("##### 7", None),
        ("the answer is #### 7", None),  # not on its own line
        ("#### ", None),
        ("####\n7", None),
        ("#### " + "9" * 5000, None),
        ("7", None),
        ("", None),
    ],
)
def test_the_answer_is_the_last_well_formed_line(text: str, answer: str | None) -> None:
    score = TASK.score(text, SEVEN, "eos")
    assert score == Score("correct" if answer == "7" else "wrong", answer)


@pytest.mark.parametrize("stop_reason", ["length", "context"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" First, 3 + 4", Score("truncated", None)),
        ("", Score("truncated", None)),
        ("#### 7", Score("truncated", None)),  # perhaps it was to be 71
        ("#### 7\n", Score("correct", "7")),
        ("#### 7\nQuestion:", Score("correct", "7")),
        ("#### 8\nQuestion:", Score("wrong", "8")),
        ("#### 7\n#### 1", Score("truncated", None)),
    ],
)
def test_a_text_that_was_cut_off_has_an_answer_only_if_it_is_complete(
    text: str, expected: Score, stop_reason: str
) -> None:
    assert TASK.score(text, SEVEN, stop_reason) == expected


def test_without_a_reference_nothing_is_judged() -> None:
    assert TASK.score("#### 7", replace(SEVEN, reference=None), "eos") == Score("unscored", "7")


def test_the_shipped_problems_are_those_training_leaves_out(tmp_path: Path) -> None:
    assert write_long_held_out(tmp_path / "again.jsonl") == ARITHMETIC_PROBLEM_COUNT >= 500
    assert (tmp_path / "again.jsonl").read_bytes() == ARITHMETIC_PROBLEMS.read_bytes()
    rows = [json.loads(line) for line in ARITHMETIC_PROBLEMS.read_text().splitlines()]
    assert list(rows[0]) == ["id", "question", "prompt", "steps", "answer"]
    assert [row["question"] for row in rows] == [p.question for p in generators.held_out_long(ARITHMETIC_PROBLEM_COUNT)]
    assert len({row["question"] for row in rows}) == len({row["id"] for row in rows}) == ARITHMETIC_PROBLEM_COUNT


def test_every_reference_solution_is_scored_correct_and_every_other_answer_wrong() -> None:
    examples = TASK.examples(TASK.size)
    problems = generators.held_out_long(ARITHMETIC_PROBLEM_COUNT)
    for example, problem in zip(examples, problems, strict=True):
        text = problem.solution(random.Random(example.id))
        assert TASK.score(text, example, "eos") == Score("correct", example.reference)
        assert TASK.score(f"#### {problem.answer + 1}", example, "eos").outcome == "wrong"


def test_a_limit_takes_the_first_prompts() -> None:
    assert TASK.examples(3) == TASK.examples(5)[:3]
    for limit in (0, -1, TASK.size + 1):
        with pytest.raises(OutOfRange, match=f"from 1 to {TASK.size}"):
            TASK.examples(limit)


def test_an_unknown_task_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownName):
        get_task("algebra")


class Repeating(Task):
    """Six prompts, of which two ask what another one did, with another reference too."""

    name, title = "repeating", "Repeating"

    def all_examples(self) -> tuple[Example, ...]:
        return tuple(Example(f"{i}", prompt, f"{i}") for i, prompt in enumerate("abacbd"))

    def score_answer(self, text: str, example: Example, stop_reason: str) -> Score:
        return Score("unscored", None)


def test_a_prompt_that_repeats_another_counts_once_and_the_others_keep_their_positions() -> None:
    task = Repeating()
    assert (task.size, task.repeats) == (4, {2, 4})
    assert [example.prompt for example in task.examples(4)] == ["a", "b", "c", "d"]
    assert list(task.examples_of(RunConfig(limit=2, first=1))) == [1, 3]
    shuffled = [task.positions(RunConfig(limit=4, shuffled=True, seed=seed)) for seed in range(5)]
    assert all(sorted(order) == [0, 1, 3, 5] for order in shuffled)
    assert len({tuple(order) for order in shuffled}) > 1
    with pytest.raises(OutOfRange):
        task.examples(5)
    assert TASK.repeats == frozenset()
