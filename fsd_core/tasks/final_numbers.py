"""The final number of a worked solution. Every pattern takes linear time, whatever a model wrote."""

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
_UNSIGNED = rf"(?:(?<![\d/])(?:\d+ )?\d+/0*[1-9]\d*(?![\d/])|{_DECIMAL})"  # "12/25/2020" is not a fraction
# The dash of "5-10" is not a sign.
_NUMBER = re.compile(rf"(?:(?<![\w.)-])-)?{_UNSIGNED}")

_MARK = re.compile(r"(?P<hashes>####)|answer\W{0,3}(?:is|would be)\b|answer\W{0,3}[:=]|\\boxed ?\{", re.IGNORECASE)
# May stand between a mark and its number: the left side of an equation. After a new line, "- 5" is a list item.
_GAP = r"(?:[-+*/×÷x().,\d ]{1,60}= ?){0,6}"
_BEHIND = re.compile(rf"[ \t:({{=]{{0,12}}{_GAP}((?:- ?)?{_UNSIGNED})|[\s:({{]{{0,16}}(-?{_UNSIGNED})")
_HEADING = re.compile(r"[.):] +\S")
_GOES_ON = re.compile(r"[-+*/×÷=().,\d \t]*\Z")

_PLACES = 12
_MOST_DIGITS = 40


def final_number(text: str, cut: bool = False) -> str | None:
    """Return the answer of a worked solution in canonical form.

    It is the number after the first ``####`` that is no heading ("#### 1. Add"); else after the last "answer is",
    "answer:" or ``\\boxed{``; else the last number.

    ``cut``: whether the text was cut off. Then the answer must be marked and the text must go on after it, else the
    result is ``None``. Text after a further "Question:" is the model's own invention and is not read. A text that was
    cut off there had ended before.
    """
    solution, *continuation = _QUESTION.split(text, maxsplit=1)
    solution, cut = _plain(solution), cut and not continuation
    hashes, marked, heading = [], [], 1
    for mark in _MARK.finditer(solution):
        match = _BEHIND.match(solution, mark.end())
        if not match or (cut and _GOES_ON.match(solution, match.end())):
            continue
        number = match[1] or match[2]
        if not mark["hashes"]:
            marked.append(number)
        elif number == str(heading) and _HEADING.match(solution, match.end()):
            heading += 1
        else:
            hashes.append(number)
    if hashes or marked:
        return canonical((hashes[:1] or marked[-1:])[0])
    return None if cut else canonical(["", *_NUMBER.findall(solution)][-1])


def canonical(number: str) -> str | None:
    """Return a number in canonical form, to twelve decimals: ``$1,200.00`` as ``1200`` and ``1 1/2`` as ``1.5``."""
    number = _plain(number).replace(",", "").replace("- ", "-").strip()
    if len(number) > _MOST_DIGITS or not _NUMBER.fullmatch(number):
        return None
    sign, number = (-1, number[1:]) if number[0] == "-" else (1, number)
    scaled = round(sign * sum(Fraction(part) for part in number.split()) * 10**_PLACES)
    whole, decimals = divmod(abs(scaled), 10**_PLACES)
    return f"{'-' if scaled < 0 else ''}{whole}.{decimals:0{_PLACES}}".rstrip("0").rstrip(".")


def _plain(text: str) -> str:
    """Return text without currencies, bold type and the LaTeX in and around numbers, and with ``½`` as ``1/2``."""
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    return _VULGAR.sub(lambda fraction: normalize("NFKC", fraction[0]).replace("⁄", "/"), text)
