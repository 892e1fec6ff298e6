"""The made-up problems that an adapter learns from: right, whole, and never those of a test set."""

from __future__ import annotations

import random
import re
from fractions import Fraction
from itertools import islice

from fsd_core.benchmarks.tasks.word_problems import canonical, final_number
from fsd_core.training.short_problems import SHAPES, generate, stream


def test_every_equation_holds_and_the_last_one_gives_the_answer() -> None:
    rng = random.Random(0)
    for _ in range(4000):
        problem = generate(rng)
        for step in problem.steps:
            left, result = step.split(" = ")
            x, sign, y = left.split()
            a, b = Fraction(x), Fraction(y)
            assert {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign] == Fraction(result) > 0
        assert problem.steps[-1].endswith(f"= {problem.answer}")


def test_the_numbers_of_the_steps_are_told_in_the_question() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        problem = generate(rng)
        told = set(re.findall(r"\d+(?:\.\d+)?", problem.question))
        results = {step.rpartition("= ")[2] for step in problem.steps}
        for step in problem.steps:
            x, _, y = step.partition(" = ")[0].split()
            assert {x, y} <= told | results
        assert "{" not in problem.question
        assert problem.question[0].isupper() or problem.question[0].isdigit()


def test_every_shape_comes_up_and_no_solution_is_misread() -> None:
    steps = set()
    for problem, solution in islice(stream(2), 3000):
        steps.add(tuple(re.sub(r"[\d.]+", "n", step) for step in problem.steps))
        assert final_number(solution) == canonical(str(problem.answer))
    assert len(steps) == len({tuple(re.sub(r"\b[a-dr]\b", "n", s) + " = n" for s in shape.steps) for shape in SHAPES})
    assert list(islice(stream(2), 20)) == list(islice(stream(2), 20))
