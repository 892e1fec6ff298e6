"""Word problems of one and two steps, generated in many wordings: training data of an adapter next to GSM8K's long
problems. Those that it never saw are the task ``short-problems``.

The shapes are those of research on children's arithmetic (Carpenter and Moser 1984: join, separate, part-whole and
compare, each with another number unknown; Greer 1992: equal groups, shares, times as many), and pairs of them in a row.
The wordings are our own. None is taken from a test set.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from fsd_core.tasks.generators.long_problems import Problem


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_SHE = _words(
    "Alice Amelia Beth Carla Chloe Clara Diana Ella Emily Erin Fiona Grace Hannah Irene Jenny Julia Karen "
    "Laura Lena Lily Maria Megan Molly Nadia Nina Olivia Paula Rachel Rosa Ruth Sarah Sofia Tina Vera Zoe"
)
_HE = _words(
    "Aaron Adam Alex Andre Bill Carl Chris Colin David Derek Eric Felix Frank George Henry Ian Isaac James "
    "Jason Joel Keith Kevin Luis Marcus Martin Mike Nathan Oscar Paul Peter Ralph Robert Simon Steve Thomas "
    "Victor"
)
_THINGS = _words(
    "apples balloons bananas baseballs beads blocks books bottles bracelets buttons candies cards carrots "
    "cookies crayons cupcakes dolls eggs erasers flowers kites lemons magazines marbles muffins notebooks "
    "oranges peaches peanuts pears pencils pictures plates potatoes pumpkins puzzles ribbons rocks roses "
    "seashells stamps stickers tickets tomatoes tulips walnuts"
)
_KINDS = (
    "red blue",
    "green yellow",
    "large small",
    "old new",
    "black white",
    "broken good",
    "round square",
    "cheap dear",
)
_PLACES = _words("box basket bag drawer garden kitchen room shop school market park library")
_GROUPS = _words("bags boxes baskets shelves rows packs tables piles trays jars")
_GOODS = tuple(
    f"a {good}" for good in _words("book shirt toy cap belt lamp game ticket ball scarf pie mug jacket sandwich comb")
)
_WORK = (
    ("reads", "pages"), ("types", "lines"), ("runs", "laps"), ("washes", "cars"), ("paints", "fences"),
    ("bakes", "loaves"), ("mows", "lawns"), ("writes", "letters"), ("solves", "problems"), ("plants", "trees"),
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """``steps``: expressions of the numbers a to c and of r, the result of the step before. ``texts``: wordings."""

    steps: tuple[str, ...]
    texts: tuple[str, ...]
    money: bool = False
    """amounts in dollars, often with cents"""


def _shape(steps: str, *texts: str, money: bool = False) -> Shape:
    return Shape(tuple(steps.split("; ")), texts, money)


PROBLEM_KINDS = (
    # join
    _shape(
        "a + b",
        "{N} has {a} {t}. {M} gives {him} {b} more. How many {t} does {N} have now?",
        "There are {a} {t} in the {p}. {N} puts {b} more {t} there. How many {t} are in the {p} now?",
        "{N} picked {a} {t} in the morning and {b} {t} in the afternoon. How many {t} did {he} pick in all?",
        "{N} found {a} {t} and {M} found {b}. How many {t} did they find together?",
        "{N} bought {a} {t} on Monday. The next day {he} bought {b} more. What is the total number of {t} {he} bought?",
    ),
    _shape(
        "a - b",
        "{N} had {b} {t}. {M} gave {him} some more, and now {he} has {a}. How many {t} did {M} give {him}?",
        "There were {b} {t} in the {p}. {N} added some, so that there are {a} now. How many {t} did {N} add?",
        "{N} needs {a} {t} and has already collected {b}. How many more {t} does {he} need?",
        "{N} got {b} {t} from {M} and then had {a} {t}. How many {t} did {he} have to start with?",
    ),
    # separate
    _shape(
        "a - b",
        "{N} had {a} {t}. {He} gave {b} of them to {M}. How many {t} does {N} have left?",
        "There were {a} {t} in the {p}. {N} took {b} of them away. How many {t} are there now?",
        "{N} had {a} {t} and lost {b}. How many {t} does {he} have now?",
        "{N} bought {a} {t} for a party. The guests took {b}. How many {t} remain?",
        "A {p} held {a} {t}, but {b} of them were sold. How many {t} were not sold?",
        "{N} had {a} {t}. After giving some to {M}, {he} has {b} left. How many {t} did {N} give to {M}?",
    ),
    _shape(
        "a + b",
        "{N} gave {a} {t} to {M} and has {b} {t} left. How many {t} did {N} have at first?",
        "After {N} sold {a} {t}, {he} still had {b}. How many {t} were there in the beginning?",
    ),
    # part and whole
    _shape(
        "a + b",
        "{N} has {a} {k} {t} and {b} {l} {t}. How many {t} does {he} have altogether?",
        "In the {p} there are {a} {k} {t} and {b} {l} ones. What is the number of {t} in the {p}?",
    ),
    _shape(
        "a - b",
        "{N} has {a} {t}. {b} of them are {k} and the rest are {l}. How many {l} {t} does {N} have?",
        "Of the {a} {t} in the {p}, {b} are {k}. How many are not {k}?",
        "Together {N} and {M} have {a} {t}. {b} of them belong to {M}. How many belong to {N}?",
    ),
    _shape(
        "a + b; r + c",
        "{N} has {a} {t}, {M} has {b} and their friend has {c}. How many {t} do they have in total?",
        "{N} saw {a} {t} in the {p}, {b} at home and {c} at a friend's. How many {t} did {he} see in all?",
    ),
    # compare
    _shape(
        "a - b",
        "{N} has {a} {t} and {M} has {b}. How many more {t} does {N} have than {M}?",
        "{M} sold {b} {t}, {N} sold {a}. How many fewer {t} did {M} sell?",
        "{N} has {a} {t}. {M} has {b} fewer than {N}. How many {t} does {M} have?",
        "{N} has {a} {t}, which is {b} more than {M} has. How many {t} does {M} have?",
    ),
    _shape(
        "a + b",
        "{N} has {a} {t}. {M} has {b} more {t} than {N}. How many {t} does {M} have?",
        "{N} has {a} {t}, which is {b} fewer than {M} has. How many {t} does {M} have?",
    ),
    # with a number that does not matter
    _shape(
        "a - b",
        "{N} had {a} {t} and {c} {u}. {He} gave {b} of the {t} to {M}. How many {t} does {he} have now?",
        "{N} bought {c} {u} and {a} {t}, but {b} of the {t} were spoilt. How many good {t} are left?",
    ),
    _shape(
        "a + b",
        "{N} has {a} {t} and {c} {u}. {M} brings {b} more {t}. How many {t} are there?",
        "In {c} days {N} collected {a} {t} and {M} collected {b}. How many {t} did they collect in all?",
    ),
    # money
    _shape(
        "a + b",
        "{N} paid {a} for {g} and {b} for {h}. How much did {he} spend in total?",
        "{N} had {a}. {M} gave {him} {b}. How much money does {N} have now?",
        money=True,
    ),
    _shape(
        "a - b",
        "{N} had {a} and spent {b} on {g}. How much money does {he} have left?",
        "{N} bought {g} for {b} and paid with {a}. How much change did {he} get?",
        "{N} spent {a} on {g} and {h}. The price of {h} was {b}. What did {g} cost?",
        money=True,
    ),
    _shape("a + b; r + c", "{N} bought {g} for {a}, {h} for {b} and a drink for {c}. What was the sum?", money=True),
    # groups and shares
    _shape(
        "a * b",
        "{N} has {a} {s} with {b} {t} in each. How many {t} does {he} have?",
        "There are {a} {s}, each with {b} {t}. How many {t} are there in all?",
        "{N} {w} {b} {x} a day. How many {x} does {he} finish in {a} days?",
        "Each of {a} friends brings {b} {t}. How many {t} do they bring together?",
        "{M} has {a} {t}. {N} has {b} times as many. How many {t} does {N} have?",
        "One of the {t} costs {a} dollars. What do {b} of them cost, in dollars?",
    ),
    _shape(
        "a / b",
        "{N} shares {a} {t} equally among {b} friends. How many {t} does each friend get?",
        "{N} puts {a} {t} into {s}, {b} in each. How many {s} does {he} need?",
        "{N} arranges {a} {t} in {b} equal {s}. How many {t} are in each?",
        "{N} {w} {b} {x} an hour. How many hours does {he} need for {a} {x}?",
        "{N} has {a} {t}, {b} times as many as {M}. How many {t} does {M} have?",
        "{b} {t} cost {a} dollars. What does one cost, in dollars?",
    ),
    # two steps
    _shape(
        "a - b; r / c",
        "{N} had {a} {t}. {He} gave {b} to {M} and put the rest into {s} of {c}. How many {s} did {he} use?",
        "Of {a} {t}, {b} were eaten. The rest were shared equally by {c} people. How many {t} did each get?",
        "{a} people want to ride, but {b} of them went home. How many cars do the others need, {c} in each?",
    ),
    _shape(
        "a + b; r / c",
        "{N} has {a} {k} {t} and {b} {l} ones. {He} puts {c} into each bag. How many bags does {he} fill?",
        "{N} had {a} {t} and got {b} more. {He} shares all of them among {c} friends. How many does each get?",
    ),
    _shape(
        "a * b; r + c",
        "{N} has {a} {s} of {b} {t} and {c} single ones. How many {t} does {he} have in all?",
        "{N} buys {a} tickets at {b} dollars each and a drink for {c} dollars. How many dollars does {he} pay?",
    ),
    _shape(
        "a * b; r - c",
        "{N} buys {a} {s} with {b} {t} in each and gives {c} {t} to {M}. How many {t} does {he} keep?",
        "{N} earns {a} dollars for each of {b} lawns and spends {c} dollars. How many dollars are left?",
    ),
    _shape(
        "a + b; r * c",
        "{N} put {a} {k} and {b} {l} {t} into each bag. How many {t} are in {c} bags?",
        "{N} has {a} {s} and {M} has {b}. Each holds {c} {t}. How many {t} do they have together?",
    ),
    _shape(
        "a - b; r * c",
        "{N} had {a} {s} and used up {b}. Each holds {c} {t}. How many {t} are left?",
        "{a} {t} were for sale at {c} dollars each, and {b} were not sold. How many dollars were earned?",
    ),
    _shape(
        "a - b; r - c",
        "{N} had {a} {t}. {He} gave {b} to {M} and lost {c}. How many {t} does {he} have left?",
        "There were {a} {t} in the {p}. {b} were sold in the morning and {c} later. How many remain?",
    ),
    _shape(
        "a - b; r + c",
        "{N} had {a} {t}. {He} sold {b} and bought {c} others. How many {t} does {he} have now?",
        "A bus had {a} people in it. At a stop {b} got off and {c} got on. How many people are in it now?",
    ),
)


def _numbers(rng: random.Random, shape: Shape) -> tuple[dict[str, Fraction], tuple[str, ...], Fraction]:
    """Return numbers that make every step positive, and whole unless money is paid, the equations, and the result."""
    top = rng.choice((12, 30, 100, 100, 900))
    while True:
        if shape.money:
            cents = rng.choice((1, 4, 100))  # whole dollars, quarters, cents
            values = {name: Fraction(rng.randint(2 * cents, 60 * cents), cents) for name in "abc"}
        else:
            values = {name: Fraction(rng.randint(2, top)) for name in "abc"}
        equations, operands = [], dict(values)
        for step in shape.steps:
            left, sign, right = step.split()
            x, y = operands[left], operands[right]
            result = {"+": x + y, "-": x - y, "*": x * y, "/": x / y}[sign]
            if result <= 0 or (sign == "*" and min(x, y) > 12) or (sign == "/" and (y > 12 or result == 1)):
                break
            equations.append(f"{_format_number(x)} {sign} {_format_number(y)} = {_format_number(result)}")
            operands["r"] = result
        else:
            if shape.money or operands["r"].denominator == 1:
                return values, tuple(equations), operands["r"]
        top = max(12, top - 1)  # products and quotients are for small numbers


def _format_number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.2f}"


def generate(rng: random.Random) -> Problem:
    """Return one problem of a random shape and wording."""
    shape = rng.choice(PROBLEM_KINDS)
    values, equations, result = _numbers(rng, shape)
    is_she = rng.random() < 0.5
    name = rng.choice(_SHE if is_she else _HE)
    other = rng.choice(_HE if is_she else _SHE)
    thing, second = rng.sample(_THINGS, 2)
    kind, contrast = rng.choice(_KINDS).split()
    good, extra = rng.sample(_GOODS, 2)
    verb, work = rng.choice(_WORK)
    he, him = ("she", "her") if is_she else ("he", "him")
    numbers = {
        number: f"${_format_number(value)}" if shape.money else _format_number(value)
        for number, value in values.items()
    }
    text = rng.choice(shape.texts).format(
        N=name, M=other, he=he, He=he.capitalize(), him=him, t=thing, u=second, k=kind, l=contrast, g=good, h=extra,
        p=rng.choice(_PLACES), s=rng.choice(_GROUPS), w=verb, x=work, **numbers,
    )  # fmt: skip
    return Problem(text[0].upper() + text[1:], equations, _format_number(result))


PROBLEMS_SHOWN = 5_000
"""The shipped adapter was trained on fewer problems than that, of all kinds together. Ours came from ``stream(0)``."""


def held_out(count: int, seed: int = 20_261_103) -> list[Problem]:
    """Return ``count`` distinct problems that the shipped adapter never saw. Training streams leave them out."""
    seen = {problem.question for problem, _ in islice(stream(0), PROBLEMS_SHOWN)}
    rng, problems = random.Random(seed), {}
    while len(problems) < count:
        problem = generate(rng)
        if problem.question not in seen:
            problems.setdefault(problem.question, problem)
    return list(problems.values())


def stream(seed: int, without: frozenset[str] = frozenset()) -> Iterator[tuple[Problem, str]]:
    """Yield problems with solutions without end whose question is not in ``without``."""
    rng = random.Random(seed)
    while True:
        problem = generate(rng)
        if problem.question not in without:
            yield problem, problem.solution(rng)
