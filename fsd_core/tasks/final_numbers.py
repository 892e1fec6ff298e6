"""The number that a worked solution ends with. No pattern takes more than linear time, whatever a model wrote."""

from __future__ import annotations

import re
from fractions import Fraction
from unicodedata import normalize

_QUESTION = re.compile(r"\n[^\S\n]*(?:Question|Q):")
_LATEX = (
    (re.compile(r"[−‒–‑]"), "-"),
    (re.compile(r"[\u00a0\u2009\u202f]|\*\*"), " "),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"(?<=\d)(?=\\[dt]?frac|[¼½¾⅐-⅞])"), " "),
    (re.compile(r"\\[dt]?frac(?:\{(\d{1,18})\}\{(\d{1,18})\}|(\d)(\d))"), r"\1\3/\2\4"),
    (re.compile(r"\\(?:text|textbf|mathrm|mathbf) ?(?=\{)|\\[,!;()\[\]]|\\?[$€£]"), ""),
)  # fmt: skip

_VULGAR = re.compile(r"[¼½¾⅐-⅞]")

_DECIMAL = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<![\w.])\.\d+"
_UNSIGNED = rf"(?:(?<![\d/])(?:\d+ )?\d+/0*[1-9]\d*(?![\d/])|{_DECIMAL})"  # "12/25/2020" is no fraction
# The dash of "5-10" is no sign.
_NUMBER = re.compile(rf"(?:(?<![\w.)-])-)?{_UNSIGNED}")

_MARK = re.compile(r"(?P<hashes>####)|answer\W{0,3}(?:is|would be)\b|answer\W{0,3}[:=]|\\boxed ?\{", re.IGNORECASE)
# What may stand between a mark and its number: of an equation, the left side. Behind a new line "- 5" is an item.
_GAP = r"(?:[-+*/×÷x().,\d ]{1,60}= ?){0,6}"
_BEHIND = re.compile(rf"[ \t:({{=]{{0,12}}{_GAP}((?:- ?)?{_UNSIGNED})|[\s:({{]{{0,16}}(-?{_UNSIGNED})")
_HEADING = re.compile(r"[.):] +\S")
_GOES_ON = re.compile(r"[-+*/×÷=().,\d \t]*\Z")

_PLACES = 12
_MOST_DIGITS = 40


def final_number(text: str, cut: bool = False) -> str | None:
    """The answer of a worked solution, in canonical form: the number behind the first ``####`` that is no heading
    ("#### 1. Add"); without one, behind the last "answer is", "answer:" or ``\\boxed{``; without any, the last number.

    ``cut``: whether the text was cut off. Its answer is then the one that is marked, if the text goes on behind it, and
    ``None`` without such a one. What follows a further "Question:" is the model's own invention and is not read: a text
    that was cut off there had ended before.
    """
    own, *invented = _QUESTION.split(text, maxsplit=1)
    own, cut = _plain(own), cut and not invented
    hashes, others, heading = [], [], 1
    for mark in _MARK.finditer(own):
        found = _BEHIND.match(own, mark.end())
        if not found or (cut and _GOES_ON.match(own, found.end())):
            continue
        number = found[1] or found[2]
        if not mark["hashes"]:
            others.append(number)
        elif number == str(heading) and _HEADING.match(own, found.end()):
            heading += 1
        else:
            hashes.append(number)
    if hashes or others:
        return canonical((hashes[:1] or others[-1:])[0])
    return None if cut else canonical(["", *_NUMBER.findall(own)][-1])


def canonical(number: str) -> str | None:
    """``$1,200.00`` and ``1200`` are the same number, as are ``1 1/2`` and ``1.5``; to twelve decimals."""
    number = _plain(number).replace(",", "").replace("- ", "-").strip()
    if len(number) > _MOST_DIGITS or not _NUMBER.fullmatch(number):
        return None
    sign, number = (-1, number[1:]) if number[0] == "-" else (1, number)
    places = round(sign * sum(Fraction(part) for part in number.split()) * 10**_PLACES)
    whole, decimals = divmod(abs(places), 10**_PLACES)
    return f"{'-' if places < 0 else ''}{whole}.{decimals:0{_PLACES}}".rstrip("0").rstrip(".")


def _plain(text: str) -> str:
    """Without currencies, bold type and the LaTeX that stands in and around numbers; ``½`` as ``1/2``."""
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    return _VULGAR.sub(lambda fraction: normalize("NFKC", fraction[0]).replace("⁄", "/"), text)
