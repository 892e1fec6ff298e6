"""Wording of worked solutions: house styles, each with the odds of one writer's favourite words.

Alternative words of a style differ in their first token, and the text after them does not depend on the choice. So a
model may take another's word for its own at no cost. Numbers are never a matter of style.

Pure functions of a ``random.Random``, without torch or files.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

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
