"""Numbers as people write them, put into plain digits. Every pattern takes linear time, whatever a model wrote."""

from __future__ import annotations

import re
from decimal import Decimal
from unicodedata import normalize

from fsd_core.tasks.readings import plain

_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
MOST_NUMBER_DIGITS = 40
_PLAIN = r"\d{1,3}(?:,\d{3})+(?:\.\d{1,20})?|\d{1,20}(?:\.\d{1,20})?"


def _scaled(match: re.Match[str]) -> str:
    """Return ``3 million`` as ``3000000``."""
    return _written(Decimal(match[1].replace(",", "")).scaleb(_SCALES[match[2].lower()]))


def _abbreviated(match: re.Match[str]) -> str:
    """Return ``$5k`` as ``$5 thousand``."""
    return f"{match[1]} { {'k': 'thousand', 'm': 'million', 'b': 'billion'}[match[2][0].lower()] }"


def _scientific(match: re.Match[str]) -> str:
    """Return ``2e3`` and ``2 × 10^3`` as ``2000``."""
    return _written(Decimal(match[1].replace(",", "")).scaleb(int(match[2] or match[3])))


def _power(match: re.Match[str]) -> str:
    """Return ``2^4`` as ``16``; a power that is no number of a word problem stays."""
    base, exponent = int(match[1]), int(match[2] or match[3])
    return str(base**exponent) if base**exponent < 10**MOST_NUMBER_DIGITS else match[0]


def _written(number: Decimal) -> str:
    return f"{number:f}"


_STEPS = (
    (re.compile(r"[−‒–‑]"), "-"),
    (re.compile(rf"([$€£] ?(?:{_PLAIN}))([kmb]|mn|bn)\b", re.IGNORECASE), _abbreviated),
    (re.compile(rf"(?<![\w.,+*/^-])(?<![+*/^-] )(?!401k)({_PLAIN})(k)(?!\w| ?[=+*/^-])", re.IGNORECASE), _abbreviated),
    (re.compile(r"(?<=\d)[\u00a0\u2007\u2009\u202f](?=\d{3}(?!\d))"), ""),
    (re.compile(r"[\u00a0\u2007\u2009\u202f]|\*\*|\\(?:quad|approx|to)(?![a-zA-Z])"), " "),
    (re.compile(r"\\(?:times|cdot)(?![a-zA-Z])"), "×"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"(?<=\d)(?=\\[dt]?frac|[¼½¾⅐-⅞])"), " "),
    (re.compile(r"\\[dtc]?frac ?(?:\{ ?(-?)(\d{1,18}) ?\} ?\{ ?(\d{1,18}) ?\}|(\d) ?(\d))"), r"\1\2\4/\3\5"),
    # Groups of three: 1'234 and 1 234, but neither 1/2 nor the places behind a point. Then 1.234,50 and 12,50 €.
    (re.compile(r"(?<=\d)['’](?=\d{3}(?!\d))"), ""),
    (re.compile(r"(?<![\d.,/'’] )(?<![\d.,/])([1-9]\d{0,2})((?: \d{3})+)(?![\d/]| \d)"),
     lambda match: match[1] + match[2].replace(" ", "")),
    (re.compile(r"(?<![\d.,])(\d{1,3}(?:\.\d{3})+),(\d{1,20})(?![\d,])"),
     lambda match: match[1].replace(".", "") + "." + match[2]),
    (re.compile(r"(?<![\d.,])(\d{1,12}),(\d{2}) ?(?=€|EUR\b|euros?\b)", re.IGNORECASE), r"\1.\2 "),
    (re.compile(r"(€ ?\d{1,12}),(?=\d{2}(?![\d,]))"), r"\1."),
    (re.compile(r"\\(?:text|textbf|mathrm|mathbf) ?(?=\{)|\\[,!;()\[\]]|\\?[$€£]"), ""),
    (re.compile(r"\b(?:USD|EUR|GBP|INR|Rs\.?) ?(?=\d)"), ""),
    # An exponent of a number, then one of a unit, which is no number: m/s^2, cm2.
    (re.compile(r"(?<=[\d)}])[⁰¹²³⁴-⁹⁻]{1,3}"), lambda match: "^" + match[0].translate(_SUPERSCRIPTS)),
    (re.compile(rf"(?<![\w.,])({_PLAIN})(?: ?[×x*·] ?10\^(?:\{{(-?\d{{1,2}})\}}|(-?\d{{1,2}}))(?!\d))"), _scientific),
    (re.compile(r"(?<![\w.,])(\d{1,20}(?:\.\d{1,20})?)[eE](?:\+?(\d{1,2})|(-\d{1,2}))(?!\w)"), _scientific),
    (re.compile(r"(?<![\w.,^])(\d{1,6})(?:\^|\*\*)(?:\{(\d{1,2})\}|(\d{1,2}))(?!\d|\.\d)"), _power),
    (re.compile(r"(?<=[A-Za-z])\^\{?-?\d{1,3}\}?"), ""),
    (re.compile(r"(?<![A-Za-z])([kcmd]?m|ft|in|yd|mi|s)[23](?!\w)"), r"\1"),
    (re.compile(r"(?:(?<=\bis )|(?<=\bbe )|(?<=\bwas )|(?<=[:=] )|(?<=#### )|\A)minus (?=\d)|\bnegative (?=\d)",
                re.IGNORECASE), "-"),
)  # fmt: skip
_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_VALUES = {word: number for number, word in enumerate(_ONES)} | {word: 10 * i for i, word in enumerate(_TENS, 2)}
SPELLED = rf"(?:{'|'.join(_VALUES)})(?:(?: and)?[ -](?:{'|'.join((*_VALUES, *_SCALES))})\b){{0,9}}"
"""a number in words"""
_WORDED = re.compile(rf"(?<![\w.,])({_PLAIN})[ -](hundred|thousand|million|billion|trillion)\b", re.IGNORECASE)
_VULGAR = re.compile(r"[¼½¾⅐-⅞]")


def spelled(words: str) -> str:
    """Return the digits of a number that :data:`SPELLED` matches: ``1205`` for "one thousand two hundred and five"."""
    total = part = 0
    for word in re.findall("[a-z]+", words.lower()):
        if word in _VALUES:
            part += _VALUES[word]
        elif word == "hundred":
            part *= 100
        elif word in _SCALES:
            total, part = total + part * 10 ** _SCALES[word], 0
    return str(total + part)


def in_digits(text: str, worded: bool = True) -> str:
    """Return a text whose numbers are plain digits.

    Currencies, bold type and the LaTeX in and around numbers go. ``½`` becomes ``1/2``; ``1.234,50 €``, ``1'234`` and
    ``1 234`` lose their groups; ``2e3``, ``2 × 10³``, ``2^4``, ``$5k`` and ``3 million`` are worked out; ``minus 7``
    becomes ``-7``; exponents of units go. ``1.234`` and ``1,234`` are read as in English. ``worded=False`` leaves
    ``3 million``.
    """
    text = plain(text)
    for pattern, replacement in _STEPS:
        text = pattern.sub(replacement, text)
    text = _WORDED.sub(_scaled, text) if worded else text
    return _VULGAR.sub(lambda fraction: normalize("NFKC", fraction[0]).replace("⁄", "/"), text)
