"""Scorers of custom tasks. Each takes time in proportion to the text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from unicodedata import normalize

import re2

from fsd_core.errors import UnknownChoice
from fsd_core.tasks.base import Example, Score, cut_off, judged
from fsd_core.tasks.choices import LETTERS, chosen_letter
from fsd_core.tasks.readings import Ended, canonical, final_number, folded, own_turn, stated_number, unwrapped

LONGEST_PATTERN = 1_000
"""characters"""
PATTERN_MEMORY = 2 << 20
"""bytes that one compiled expression may take"""


@dataclass(frozen=True)
class Scorer:
    """A method of scoring."""

    name: str
    title: str
    about: str
    """the criterion for a correct answer, in a sentence"""
    read: Callable[[str], str]
    """returns the reference as it is compared. Raises ``ValueError`` with what is wrong, such as "is no number"."""
    judge: Callable[[str, Example, str], Score]
    """(text, example, stop reason); pure"""
    needs_reference: bool = True


def _number(reference: str) -> str:
    """Return a number, or the answer that is marked in a worked solution ("… #### 88")."""
    # As in a text that was cut off somewhere behind its answer, a number counts only where it is marked.
    number = canonical(reference) or final_number(f"{reference}\n…", cut=True)
    if number is None:
        raise ValueError("is no number: expected one such as 1200, 3.5 or 1/2, or a solution that ends in #### 1200")
    return number


def _judge_number(text: str, example: Example, stop_reason: str) -> Score:
    return judged(stated_number(text, example.reference, cut_off(stop_reason)), example, stop_reason)


def _letter(reference: str) -> str:
    letter = reference.strip().upper()
    if len(letter) > 1:
        letter = chosen_letter(reference) or ""
    if len(letter) != 1 or letter not in LETTERS:
        raise ValueError(f"is no choice: expected one letter from {LETTERS[0]} to {LETTERS[-1]}")
    return letter


def _judge_choice(text: str, example: Example, stop_reason: str) -> Score:
    return judged(chosen_letter(text, cut_off(stop_reason)), example, stop_reason)


def _normalised(text: str) -> str:
    """Return text with single spaces, without capitals, and with one form of each mark (:func:`folded`)."""
    return " ".join(folded(text).split()).casefold()


def _own(text: str, example: Example) -> Ended:
    """Return a text up to a further turn, unless the reference has turns itself."""
    return Ended(text, False) if own_turn(f".\n{example.reference}").goes_on else own_turn(text)


def _exact(reference: str) -> str:
    if not reference.strip():
        raise ValueError("is empty: expected the whole text that is right")
    return reference.strip()


def _judge_exact(text: str, example: Example, stop_reason: str) -> Score:
    """Score an exact match of :func:`folded` texts, with or without wrappers. A text that was cut off may have gone on,
    so it never matches."""
    own, goes_on = _own(text, example)
    cut, said, expected = cut_off(stop_reason) and not goes_on, normalize("NFC", own.strip()), example.reference or ""
    same = folded(expected) in (folded(said), folded(unwrapped(said).strip()))
    return judged(None if cut else said, replace(example, reference=said if same else expected), stop_reason)


def _part(reference: str) -> str:
    if not reference.strip():
        raise ValueError("is empty: every text contains that")
    return reference.strip()


def _match_score(part: str | None, stop_reason: str) -> Score:
    if part is not None:
        return Score("correct", part)
    return Score("truncated", None) if cut_off(stop_reason) else Score("wrong", "")  # it was read: nothing is there


def _judge_contains(text: str, example: Example, stop_reason: str) -> Score:
    part = example.reference or ""
    found = _normalised(part) in _normalised(_own(text, example).text)
    return _match_score(part if found else None, stop_reason)


@lru_cache(64)
def _compiled(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.max_mem, options.log_errors = PATTERN_MEMORY, False
    return re2.compile(pattern, options)


def usable_pattern(reference: str) -> str:
    """Return a regular expression that can be searched for. Raises ``ValueError`` with what is wrong with it."""
    if len(reference) > LONGEST_PATTERN:
        raise ValueError(f"has {len(reference):,} characters: expected an expression of at most {LONGEST_PATTERN:,}")
    if re.search(r"\{\d{5,}", reference):  # RE2 reads nine digits and more as plain characters
        raise ValueError("repeats more often than 1,000 times: expected fewer")
    if not reference.isascii() and re.search(r"\\[bB]", reference):
        raise ValueError(r"has \b beside letters that are not ASCII, which \b does not know: write (^|\PL) or (\PL|$)")
    try:
        matches_nothing = _compiled(reference).search("")
    except re2.error as error:
        raise ValueError(f"is no regular expression of RE2 ({error.args[0].decode(errors='replace')})") from None
    except UnicodeEncodeError:
        raise ValueError("has half a character (a surrogate): expected text") from None
    if matches_nothing:
        raise ValueError("matches even an empty text, so every answer would be right")
    return reference


def found_by(pattern: str, text: str) -> str | None:
    """Return what a usable regular expression finds last in a text, its first group if it has one; ``None`` if it finds
    nothing."""
    compiled, last = _compiled(pattern), None
    for last in compiled.finditer(text):  # noqa: B007
        pass
    return None if last is None else last[1] if compiled.groups else last[0]


def _judge_pattern(text: str, example: Example, stop_reason: str) -> Score:
    """Score a regular expression, whose ``$`` stands before a last newline as well, as Python's does. Lines that end
    with a carriage return and a newline are read as lines that end with a newline.

    RE2 takes time in proportion to the text and a bounded memory: https://github.com/google/re2/wiki/Syntax.
    """
    pattern, text = _compiled(example.reference or ""), text.replace("\r\n", "\n")
    match = pattern.search(text) or pattern.search(text.removesuffix("\n"))
    return _match_score(None if match is None else match[0], stop_reason)


_ALL = (
    Scorer("number", "Number", "The number that the text ends with is the reference.", _number, _judge_number),
    Scorer("choice", "Choice", "The letter that the text chooses is the reference.", _letter, _judge_choice),
    Scorer("exact", "Exact", "The text is the reference, apart from spaces around it.", _exact, _judge_exact),
    Scorer("contains", "Contains", "The reference stands in the text; capitals and spacing do not matter.", _part,
           _judge_contains),
    Scorer("regex", "Regular expression", "The reference is a regular expression that is found in the text.",
           usable_pattern,
           _judge_pattern),
    Scorer("none", "None: fidelity", "Nothing is right or wrong: texts are held against the target's own.", str,
           lambda text, example, stop_reason: Score("unscored", None), needs_reference=False),
)  # fmt: skip
SCORERS = {scorer.name: scorer for scorer in _ALL}


def get_scorer(name: str) -> Scorer:
    """Return the scorer of that name. Raises ``InvalidSetting``."""
    if name not in SCORERS:
        raise UnknownChoice(f"The scorer {name[:40]!r} is not known: expected one of {', '.join(SCORERS)}.")
    return SCORERS[name]
