"""The final number of a worked solution. Every pattern takes linear time, whatever a model wrote."""

from __future__ import annotations

import re
from fractions import Fraction

from fsd_core.tasks.cue_words import ANSWER, DECIMAL_COMMA
from fsd_core.tasks.number_words import MOST_NUMBER_DIGITS, SPELLED, in_digits, spelled
from fsd_core.tasks.readings import own_turn

_DECIMAL = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,2}(?:,\d{2}){1,12},\d{3}(?!\d)|\d+)(?:\.\d+)?|(?<![\w.])\.\d+"
_UNSIGNED = rf"(?:(?<![\d/])(?:\d+ )?\d+/0*[1-9]\d*(?![\d/])|{_DECIMAL})"  # "12/25/2020" is not a fraction
# The dash of "5-10" is not a sign. The 2 of "CO2" is no number; the 19 of "COVID-19" may be one.
_NUMBER = re.compile(rf"(?<![A-Za-z])(?<![A-Za-z]\d)(?:(?<![\w.)-])-)?{_UNSIGNED}")

_MARKS = (
    r"(?P<hashes>####)|answer\W{0,3}(?:(?:is|(?:would|must|should) be)\b|[:=])|\\boxed ?\{|<answer>|\bans\W{0,3}[:=]"
    rf"|[\"'](?:result|solution)[\"'] ?:|{ANSWER}"
)
_MARK = re.compile(_MARKS, re.IGNORECASE)
# May stand between a mark and its number: the left side of an equation. After a new line, "- 5" is a list item.
_GAP = r"(?:[-+*/×÷x().,\d ]{1,60}= ?){0,6}"
_BEHIND = re.compile(rf"[ \t:({{=\"']{{0,12}}{_GAP}((?:- ?)?{_UNSIGNED})|[\s:({{\"']{{0,16}}(-?{_UNSIGNED})")
# "5 apples + 3 apples = 8"
_COUNTED = rf"(?:{_DECIMAL})(?: [a-z]{{1,20}}){{0,2}}"
_SUM = re.compile(rf"[ \t:({{]{{0,12}}{_COUNTED}(?: ?[-+*/×÷x] ?{_COUNTED}){{1,6}} ?= ?(-?(?:{_DECIMAL}))")
# "28 = 4 × 7", "28 (4 × 7)", "28, because 4 × 7": what follows a number is how it came about.
_UNITS = r"(?: [a-z]{2,20}){0,2}"
_TERM = rf"\(?(?:{_DECIMAL})\)?%?{_UNITS}"
_WORKING = re.compile(
    rf"(?<![-+*/×÷^\d)] )(?<! x )(?<![-+*/×÷^\w.,])(-?{_UNSIGNED}{_UNITS})"
    rf"(?: ?= ?| \((?!\d+-\d)=? ?|,? (?:because|since|as) )(?>{_TERM}(?: ?[-+*/×÷x] ?{_TERM}){{1,8}})\)?(?! ?[=≈^])"
)
_IN_WORDS = re.compile(
    rf"((?:{_MARKS})[\s:({{*\"']{{0,12}})\b({SPELLED})\b(?! (?:of|that|which|who|or)\b)", re.IGNORECASE
)
_ALONE = re.compile(rf"\A(\W{{0,9}})()({SPELLED})(?: [a-z]+){{0,2}}\W{{0,3}}\Z", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(DECIMAL_COMMA, re.IGNORECASE)
_COMMA = re.compile(r"(?<![\d.,])(\d{1,12}),(?=\d{1,2}(?![\d,]))")
_CORRECTION = re.compile(
    r"\b(?:wait|hold on|actually|correction|corrected|scratch that|oops|sorry|my mistake|on second thought"
    r"|I made an? (?:mistake|error)|that(?:['’]s| is) (?:wrong|incorrect|not right)|let me (?:re|fix|correct))",
    re.IGNORECASE,
)  # fmt: skip
_INSTEAD = re.compile(
    rf"(?:should(?: have been| be)|answer is|result is|it['’]s|it is|must be) {{0,2}}(-?{_UNSIGNED})", re.IGNORECASE
)
_HEADING = re.compile(r"[.):] +\S")
_GOES_ON = re.compile(r"[-+*/×÷=^().,\d \t]*\Z")

_PLACES = 12


def stated_number(text: str, reference: str | None, cut: bool = False) -> str | None:
    """Return the answer of a worked solution as its reference is written.

    ``3 million`` is 3000000, but 3 where that is the reference: questions such as "how many millions?" leave open which
    of them is meant.
    """
    number = final_number(text, cut)
    return number if number == reference or final_number(text, cut, worded=False) != reference else reference


def final_number(text: str, cut: bool = False, worded: bool = True) -> str | None:
    """Return the answer of a worked solution in canonical form.

    It is the number after the first ``####`` that is no heading ("#### 1. Add"); else after the last "answer is",
    "answer:" or ``\\boxed{``; else the last number. If the text takes that back ("wait", "sorry"), it is the last
    number behind a further ``####``, "should be" or "it is", where there is one.

    ``cut``: whether the text was cut off. Then the answer must be marked and the text must go on after it, else the
    result is ``None``. Text after a further "Question:" is the model's own invention and is not read. A text that was
    cut off there had ended before. ``worded``: whether "3 million" is 3000000 and not 3.
    """
    solution, goes_on = own_turn(text)
    if _DECIMAL_COMMA.search(solution):
        solution = _COMMA.sub(r"\1.", solution)
    solution, cut = in_digits(solution, worded), cut and not goes_on
    solution = _WORKING.sub(r"\1", solution)
    for in_words in (_IN_WORDS, _ALONE):
        solution = in_words.sub(lambda match: match[1] + spelled(match[3]), solution)
    hashes, marked, heading = [], [], 1
    for mark in _MARK.finditer(solution):
        match = _SUM.match(solution, mark.end()) or _BEHIND.match(solution, mark.end())
        if not match or (cut and _GOES_ON.match(solution, match.end())):
            continue
        if not mark["hashes"]:
            marked.append(match)
        elif _number_in(match) == str(heading) and _HEADING.match(solution, match.end()):
            heading += 1
        else:
            hashes.append(match)
    found = (hashes[:1] or marked[-1:] or [None])[0]
    if correction := _CORRECTION.search(solution, found.end() if found else 0):
        later = [match for match in hashes if match.start() > correction.end()]
        later = later or [
            match
            for match in _INSTEAD.finditer(solution, correction.end())
            if not (cut and _GOES_ON.match(solution, match.end()))
        ]
        found = later[-1] if later else found
    if found:
        return canonical(_number_in(found))
    return None if cut else canonical(["", *_NUMBER.findall(solution)][-1])


def _number_in(match: re.Match[str]) -> str:
    return next(filter(None, match.groups()))


def canonical(number: str) -> str | None:
    """Return a number in canonical form, to twelve decimals: ``$1,200.00`` as ``1200`` and ``1 1/2`` as ``1.5``."""
    number = in_digits(number).replace(",", "").replace("- ", "-").strip()
    if len(number) > MOST_NUMBER_DIGITS or not _NUMBER.fullmatch(number):
        return None
    sign, number = (-1, number[1:]) if number[0] == "-" else (1, number)
    scaled = round(sign * sum(Fraction(part) for part in number.split()) * 10**_PLACES)
    whole, decimals = divmod(abs(scaled), 10**_PLACES)
    return f"{'-' if scaled < 0 else ''}{whole}.{decimals:0{_PLACES}}".rstrip("0").rstrip(".")
