"""Generated problems: the tasks that ship, and the training data of the shipped weights.

Wording of worked solutions: house styles, each with the odds of one writer's favourite words.

Alternative words of a style differ in their first token, and the text after them does not depend on the choice. So a
model may take another's word for its own at no cost. Numbers are never a matter of style.

Arithmetic word problems with worked steps: the task of the bundled pair.

Every problem is a short story about small whole numbers, every solution a chain of one-operation steps and a last line
``#### answer``. The wording of a solution is sampled from a house style, its numbers never are. A model that solves the
problem still has a free choice of words, where two models may differ at no cost.

Pure functions of a ``random.Random``, without torch or files.

Word problems of one and two steps, generated in many wordings: training data of an adapter next to GSM8K's long
problems. Those that it never saw are the task ``short-problems``.

The shapes are those of research on children's arithmetic (Carpenter and Moser 1984: join, separate, part-whole and
compare, each with another number unknown; Greer 1992: equal groups, shares, times as many), and pairs of them in a row.
The wordings are our own. None is taken from a test set.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice

Choice = tuple[tuple[str, int], ...]
"""alternative wordings, each with its odds"""


@dataclass(frozen=True)
class Style:
    """``openers`` begin the first step, ``connectives`` the others, each followed by one of ``marks``. ``closers`` name
    the answer as ``{0}``. ``signs`` are wordings of the signs of an equation. Any other sign is written unchanged."""

    openers: Choice
    connectives: Choice
    closers: Choice
    marks: Choice = (("", 1),)
    signs: dict[str, Choice] = field(default_factory=dict)

    def solution(self, steps: Sequence[str], answer: int | str, rng: random.Random) -> str:
        """Return ``steps`` as sentences and the answer, in words sampled with ``rng``. The text begins with a space and
        ends with the answer."""
        words = _draw(self.openers, rng) + _draw(self.connectives, rng, len(steps) - 1)
        (closer,) = _draw(self.closers, rng)
        marks = _draw(self.marks, rng, len(steps))
        sentences = [
            f" {word}{mark} {self._equation(step, rng)}." for word, mark, step in zip(words, marks, steps, strict=True)
        ]
        return "".join(sentences) + f" {closer.format(answer)}\n#### {answer}"

    def choices(self) -> dict[str, Choice]:
        """Return every choice of words by its name, that of a sign by the sign."""
        words = {"openers": self.openers, "connectives": self.connectives, "marks": self.marks}
        return words | {"closers": self.closers} | self.signs

    def favourites(self) -> Style:
        """Return the style of a writer who always takes the likeliest word."""
        return Style(
            _likeliest(self.openers),
            _likeliest(self.connectives),
            _likeliest(self.closers),
            _likeliest(self.marks),
            {sign: _likeliest(choice) for sign, choice in self.signs.items()},
        )

    def _equation(self, step: str, rng: random.Random) -> str:
        return " ".join(_draw(self.signs[part], rng)[0] if part in self.signs else part for part in step.split(" "))


def _likeliest(choice: Choice) -> Choice:
    return (max(choice, key=lambda option: option[1]),)


def _draw(choice: Choice, rng: random.Random, count: int = 1) -> list[str]:
    if len(choice) == 1:
        return [choice[0][0]] * count
    words, odds = zip(*choice, strict=True)
    return rng.choices(words, odds, k=count)


PLAIN_STYLE = Style(
    openers=(("First,", 40), ("Start:", 35), ("We begin:", 25)),
    connectives=(("Then", 32), ("Next,", 28), ("Now", 22), ("After that,", 18)),
    closers=(("So the answer is {0}.", 38), ("That makes {0}.", 34), ("The result is {0}.", 28)),
)
"""writes equations with their signs"""

TARGET_STYLE = Style(
    openers=(("First", 44), ("To begin", 32), ("Step one", 24)),
    connectives=(("Next", 34), ("Now", 28), ("After that", 21), ("Then", 17)),
    marks=((",", 58), (":", 42)),
    closers=(("The result is {0}.", 44), ("That makes {0}.", 32), ("So the answer is {0}.", 24)),
    signs={
        "+": (("plus", 44), ("and", 32), ("+", 24)),
        "-": (("minus", 44), ("less", 32), ("-", 24)),
        "*": (("times", 44), ("x", 32), ("*", 24)),
        "/": (("divided by", 44), ("over", 32), ("/", 24)),
        "=": (("is", 34), ("makes", 28), ("gives", 21), ("=", 17)),
    },
)
"""the bundled target's style: words before signs"""


def _reversed(choice: Choice) -> Choice:
    words, odds = zip(*choice, strict=True)
    return tuple(zip(words, odds[::-1], strict=True))


DRAFT_STYLE = Style(
    openers=_reversed(TARGET_STYLE.openers),
    connectives=_reversed(TARGET_STYLE.connectives),
    marks=_reversed(TARGET_STYLE.marks),
    closers=_reversed(TARGET_STYLE.closers),
    signs={sign: _reversed(choice) for sign, choice in TARGET_STYLE.signs.items()},
)
"""the bundled draft's style: the same words with the odds reversed, so that signs come before words"""

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


_LONG_KINDS: tuple[Callable[[random.Random], Problem], ...] = (chain, chain, packs, compare, shop, share)


def generate_long(rng: random.Random) -> Problem:
    """Return one problem of a random kind."""
    return rng.choice(_LONG_KINDS)(rng)


def held_out_long(count: int, seed: int = 20_250_228) -> list[Problem]:
    """Return ``count`` distinct problems. Training streams leave their questions out."""
    rng, problems = random.Random(seed), {}
    while len(problems) < count:
        problem = generate_long(rng)
        problems.setdefault(problem.question, problem)
    return list(problems.values())


def stream_long(
    seed: int, without: frozenset[str] = frozenset(), style: Style = PLAIN_STYLE
) -> Iterator[tuple[Problem, str]]:
    """Yield (problem, solution) pairs without end whose question is not in ``without``."""
    rng = random.Random(seed)
    while True:
        problem = generate_long(rng)
        if problem.question not in without:
            yield problem, problem.solution(rng, style)


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
_SHORT_KINDS = (
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


def generate_short(rng: random.Random) -> Problem:
    """Return one problem of a random shape and wording."""
    shape = rng.choice(PROBLEM_KINDS)
    values, equations, result = _numbers(rng, shape)
    is_she = rng.random() < 0.5
    name = rng.choice(_SHE if is_she else _HE)
    other = rng.choice(_HE if is_she else _SHE)
    thing, second = rng.sample(_THINGS, 2)
    kind, contrast = rng.choice(_SHORT_KINDS).split()
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


def held_out_short(count: int, seed: int = 20_261_103) -> list[Problem]:
    """Return ``count`` distinct problems that the shipped adapter never saw. Training streams leave them out."""
    seen = {problem.question for problem, _ in islice(stream_short(0), PROBLEMS_SHOWN)}
    rng, problems = random.Random(seed), {}
    while len(problems) < count:
        problem = generate_short(rng)
        if problem.question not in seen:
            problems.setdefault(problem.question, problem)
    return list(problems.values())


def stream_short(seed: int, without: frozenset[str] = frozenset()) -> Iterator[tuple[Problem, str]]:
    """Yield problems with solutions without end whose question is not in ``without``."""
    rng = random.Random(seed)
    while True:
        problem = generate_short(rng)
        if problem.question not in without:
            yield problem, problem.solution(rng)
