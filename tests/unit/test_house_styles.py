"""House styles: two writers tell the same sums in other favourite words, and neither word tells what comes after."""

from __future__ import annotations

import math
import random
import re
from itertools import islice

import pytest

from fsd_core.tasks import generators
from fsd_core.tasks.generators import DRAFT_STYLE, PLAIN_STYLE, TARGET_STYLE, Choice, Style


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
