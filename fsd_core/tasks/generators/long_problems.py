"""Arithmetic word problems with worked steps: the task of the bundled pair.

Every problem is a short story about small whole numbers, every solution a chain of one-operation steps and a last line
``#### answer``. The wording of a solution is sampled from a house style
(:mod:`fsd_core.tasks.generators.house_styles`), its numbers never are. A model that solves the problem still has a free
choice of words, where two models may differ at no cost.

Pure functions of a ``random.Random``, without torch or files.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fsd_core.tasks.generators.house_styles import PLAIN_STYLE, Style

_NAMES = ("Ava", "Ben", "Cara", "Dan", "Eva", "Finn", "Gia", "Hugo", "Ivy", "Jack", "Kim", "Leo", "Mia", "Noah")
ITEMS = ("apples", "books", "cards", "coins", "eggs", "nuts", "pens", "shells", "stamps", "toys")
BOXES = ("bags", "boxes", "jars", "packs")


@dataclass(frozen=True)
class Problem:
    """One problem: ``question`` as text, ``steps`` as equations. ``answer`` is text if it has decimals."""

    question: str
    steps: tuple[str, ...]
    answer: int | str

    @property
    def prompt(self) -> str:
        """The input of a model."""
        return f"Question: {self.question}\nAnswer:"

    def solution(self, rng: random.Random, style: Style = PLAIN_STYLE) -> str:
        """Return a worked solution in wording sampled with ``rng``. Begins with a space, ends with the answer."""
        return style.solution(self.steps, self.answer, rng)


def _step(a: int, operator: str, b: int) -> tuple[str, int]:
    result = {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[operator]
    return f"{a} {operator} {b} = {result}", result


def _story(rng: random.Random) -> tuple[str, str, str]:
    first, second = rng.sample(_NAMES, 2)
    return first, second, rng.choice(ITEMS)


def _divisor(rng: random.Random, total: int) -> int | None:
    choices = [k for k in range(2, 10) if total % k == 0 and total // k > 1]
    return rng.choice(choices) if choices else None


def chain(rng: random.Random) -> Problem:
    """Return a problem in which one person's things change two to four times."""
    name, other, item = _story(rng)
    total = rng.randint(4, 40)
    text, steps = [f"{name} has {total} {item}."], []
    for _ in range(rng.randint(2, 4)):
        gain, loss = rng.randint(2, 25), rng.randint(2, max(2, min(25, total - 1)))
        kind = rng.choice(("gain", "gain", "loss", "loss", "double", "half"))
        if kind == "double" and total <= 45:
            text.append(rng.choice((f"Then the {item} double.", f"{name} now gets twice as many.")))
            step, total = _step(total, "*", 2)
        elif kind == "half" and total % 2 == 0 and total > 4:
            text.append(rng.choice((f"{name} sells half of them.", f"Half of the {item} get lost.")))
            step, total = _step(total, "/", 2)
        elif kind == "loss" and total > loss:
            text.append(
                rng.choice((f"{name} gives {loss} to {other}.", f"{name} loses {loss}.", f"{name} sells {loss}."))
            )
            step, total = _step(total, "-", loss)
        else:
            text.append(
                rng.choice((f"{name} finds {gain} more.", f"{other} gives {name} {gain}.", f"{name} buys {gain}."))
            )
            step, total = _step(total, "+", gain)
        steps.append(step)
    text.append(f"How many {item} does {name} have now?")
    return Problem(" ".join(text), tuple(steps), total)


def packs(rng: random.Random) -> Problem:
    """Return a problem of equal groups, and then some more or some fewer."""
    name, other, item = _story(rng)
    boxes, count, each = rng.choice(BOXES), rng.randint(2, 9), rng.randint(2, 9)
    text = [f"{name} buys {count} {boxes} with {each} {item} each."]
    step, total = _step(count, "*", each)
    steps = [step]
    for _ in range(rng.randint(1, 2)):
        if rng.random() < 0.5 and total > 4:
            change = rng.randint(2, min(25, total - 1))
            text.append(rng.choice((f"{name} gives {change} to {other}.", f"{change} {item} are broken.")))
            step, total = _step(total, "-", change)
        else:
            change = rng.randint(2, 25)
            text.append(rng.choice((f"{name} already had {change}.", f"{other} brings {change} more.")))
            step, total = _step(total, "+", change)
        steps.append(step)
    text.append(f"How many {item} does {name} have?")
    return Problem(" ".join(text), tuple(steps), total)


def compare(rng: random.Random) -> Problem:
    """Return a problem about two people, one given relative to the other, that asks for both together."""
    name, other, item = _story(rng)
    first = rng.randint(3, 30)
    how = rng.choice(("more", "fewer", "times"))
    if how == "more":
        gap = rng.randint(2, 20)
        relation, (step, second) = f"{gap} more {item} than {name}", _step(first, "+", gap)
    elif how == "fewer" and first > 4:
        gap = rng.randint(2, first - 2)
        relation, (step, second) = f"{gap} fewer {item} than {name}", _step(first, "-", gap)
    else:
        first = rng.randint(3, 9)
        gap = rng.randint(2, 5)
        relation, (step, second) = f"{gap} times as many {item} as {name}", _step(first, "*", gap)
    both, total = _step(first, "+", second)
    question = f"{name} has {first} {item}. {other} has {relation}. How many {item} do they have together?"
    return Problem(question, (step, both), total)


def shop(rng: random.Random) -> Problem:
    """Return a problem of things at a price, paid with a round sum, that asks for the change."""
    name, _, item = _story(rng)
    price, count = rng.randint(2, 9), rng.randint(2, 9)
    step, cost = _step(price, "*", count)
    extra = rng.choice((0, 0, rng.randint(2, 9)))
    text, steps = [f"{item.capitalize()} cost {price} dollars each. {name} buys {count}."], [step]
    if extra:
        text.append(f"A bag costs {extra} dollars more.")
        step, cost = _step(cost, "+", extra)
        steps.append(step)
    paid = rng.choice([s for s in (20, 30, 40, 50, 60, 70, 80, 90, 100) if s > cost])
    step, change = _step(paid, "-", cost)
    text.append(f"{name} pays with {paid} dollars. How many dollars does {name} get back?")
    return Problem(" ".join(text), (*steps, step), change)


def share(rng: random.Random) -> Problem:
    """Return a problem that divides a sum or a remainder equally."""
    name, other, item = _story(rng)
    while True:
        start, change = rng.randint(6, 50), rng.randint(2, 20)
        adds = rng.random() < 0.5
        total = start + change if adds else start - change
        if total > 3 and (friends := _divisor(rng, total)):
            break
    event = rng.choice((f"{name} finds {change} more", f"{other} adds {change}")) if adds else f"{name} eats {change}"
    first, total = _step(start, "+" if adds else "-", change)
    second, each = _step(total, "/", friends)
    question = (
        f"{name} has {start} {item}. {event} and shares all of them equally among {friends} friends. "
        f"How many {item} does each friend get?"
    )
    return Problem(question, (first, second), each)


_KINDS: tuple[Callable[[random.Random], Problem], ...] = (chain, chain, packs, compare, shop, share)


def generate(rng: random.Random) -> Problem:
    """Return one problem of a random kind."""
    return rng.choice(_KINDS)(rng)


def held_out(count: int, seed: int = 20_250_228) -> list[Problem]:
    """Return ``count`` distinct problems. Training streams leave their questions out."""
    rng, problems = random.Random(seed), {}
    while len(problems) < count:
        problem = generate(rng)
        problems.setdefault(problem.question, problem)
    return list(problems.values())


def stream(
    seed: int, without: frozenset[str] = frozenset(), style: Style = PLAIN_STYLE
) -> Iterator[tuple[Problem, str]]:
    """Yield (problem, solution) pairs without end whose question is not in ``without``."""
    rng = random.Random(seed)
    while True:
        problem = generate(rng)
        if problem.question not in without:
            yield problem, problem.solution(rng, style)
