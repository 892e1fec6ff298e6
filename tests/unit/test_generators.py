"""Made-up problems are right, whole and told in a house style, and never those that they are tried on."""

from __future__ import annotations

import json
import math
import random
import re
from fractions import Fraction
from itertools import islice
from pathlib import Path

import pytest

from fsd_core.models.model_pairs import ADAPTED, MODEL_PAIRS
from fsd_core.tasks import Score, get_task
from fsd_core.tasks.readings import canonical, final_number
from fsd_core.tasks.word_problems import SHORT_PROBLEMS, zero_shot_prompt
from fsd_plugins.training import generators
from fsd_plugins.training.generators import (
    DRAFT_STYLE,
    PLAIN_STYLE,
    PROBLEM_KINDS,
    PROBLEMS_SHOWN,
    TARGET_STYLE,
    Choice,
    Style,
    generate_short,
    stream_short,
)
from fsd_plugins.training.held_out import SHORT_PROBLEM_COUNT, short_questions, write_short


def js(p: list[float], q: list[float]) -> float:
    """Jensen-Shannon divergence in nats."""
    return sum(
        0.5 * x * math.log(2 * x / (x + y)) + 0.5 * y * math.log(2 * y / (x + y)) for x, y in zip(p, q, strict=True)
    )


def shares(choice: Choice) -> list[float]:
    return [odds / sum(odds for _, odds in choice) for _, odds in choice]


@pytest.mark.parametrize("name", TARGET_STYLE.choices())
def test_the_styles_know_the_same_words_and_prefer_others_at_close_odds(name: str) -> None:
    target, draft = TARGET_STYLE.choices()[name], DRAFT_STYLE.choices()[name]
    assert [word for word, _ in target] == [word for word, _ in draft]
    assert max(target, key=lambda way: way[1])[0] != max(draft, key=lambda way: way[1])[0]
    assert 0.01 < js(shares(target), shares(draft)) < 0.05


@pytest.mark.parametrize("name", TARGET_STYLE.choices())
def test_words_to_choose_from_differ_at_once(name: str) -> None:
    firsts = [word.split(" ")[0] for word, _ in TARGET_STYLE.choices()[name]]
    assert len({*firsts}) == len(firsts) > 1


@pytest.mark.parametrize("style", [PLAIN_STYLE, TARGET_STYLE, DRAFT_STYLE], ids=["plain", "target", "draft"])
def test_every_style_tells_the_same_numbers_in_the_same_order(style: Style) -> None:
    for problem, text in islice(generators.stream_long(3, style=style), 500):
        told = re.findall(r"\d+", text)
        assert told == [*re.findall(r"\d+", " ".join(problem.steps)), str(problem.answer), str(problem.answer)]
        assert text.startswith(" ")
        assert text.endswith(f"\n#### {problem.answer}")


def test_words_come_as_often_as_their_odds() -> None:
    texts = " ".join(text for _, text in islice(generators.stream_long(4, style=TARGET_STYLE), 4000))
    written = {word: len(re.findall(rf"\d {re.escape(word)} \d", texts)) for word, _ in TARGET_STYLE.signs["="]}
    for word, odds in TARGET_STYLE.signs["="]:
        assert written[word] / sum(written.values()) == pytest.approx(odds / 100, abs=0.02)


def test_the_plain_style_writes_the_equations() -> None:
    problem = generators.Problem("?", ("14 + 6 = 20", "20 / 5 = 4"), 4)
    for seed in range(20):
        text = problem.solution(random.Random(seed))
        assert all(step in text for step in problem.steps)


def test_a_solution_in_the_two_styles() -> None:
    problem = generators.Problem("?", ("14 + 6 = 20", "20 / 5 = 4"), 4)
    favourites = [style.favourites() for style in (TARGET_STYLE, DRAFT_STYLE)]
    assert [problem.solution(random.Random(0), style) for style in favourites] == [
        " First, 14 plus 6 is 20. Next, 20 divided by 5 is 4. The result is 4.\n#### 4",
        " Step one: 14 + 6 = 20. Then: 20 / 5 = 4. So the answer is 4.\n#### 4",
    ]


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
    assert write_short(tmp_path / "again.jsonl") == SHORT_PROBLEM_COUNT == TASK.size
    assert (tmp_path / "again.jsonl").read_bytes() == SHORT_PROBLEMS.read_bytes()
    assert len(short_questions()) == len({example.id for example in TASK.all_examples()}) == SHORT_PROBLEM_COUNT


@pytest.mark.wide
def test_the_adapter_that_ships_saw_none_of_them() -> None:
    assert ADAPTER is not None
    trained = json.loads((ADAPTER / "training.json").read_text())
    schedule = trained["plan"]["schedule"]
    assert trained["seed"] == 0
    # 64 are only looked at, and problems are drawn 16 batches at a time; few of GSM8K are too long and drawn in vain.
    assert 64 + schedule["batch"] * (schedule["steps"] + 16) < PROBLEMS_SHOWN
    shown = [problem.question for problem, _ in islice(stream_short(0), PROBLEMS_SHOWN)]
    assert not short_questions() & set(shown)
    # So what is left out from now on changes nothing in how that adapter was made.
    left_out = stream_short(0, without=short_questions())
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
