"""Readings of answers: where an answer ends, and the number that it gives.

Words around an answer, in languages other than English. The patterns take linear time and are read without regard
to capitals.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple
from unicodedata import normalize

# What an answer is called; what stands between that and the answer; what stands before a conclusion or a choice; what
# is said of a letter that is right.
_LANGUAGES = {
    "Chinese": ("答案|选项|選項", "应该是|是|为|為|选|選", "所以|因此|故|选择|選擇|选|選", "正确|正確|对的"),
    "Japanese": ("答え|正解|解答|回答", "は|が", "よって|したがって|ゆえに|だから", "正解|正しい|正答|答え"),
    "Korean": ("정답|답변|답", "은|는|이|가", "따라서|그러므로|그래서", "정답|답|맞|옳"),
    "Spanish": ("respuesta|opción|solución", "es|sería", "por (?:lo )?tanto|así que|elijo", "correct[ao]|la respuesta"),
    "French": ("réponse|choix", "est|serait", "donc|ainsi|je choisis", "est correct|correcte|bonne|la réponse"),
    "German": ("antwort|lösung|richtig", "ist|lautet|wäre", "daher|somit|folglich|ich wähle", "richtig|korrekt"),
    "Portuguese": ("resposta|opção|alternativa", "é|seria", "portanto|logo|escolho", "corret[ao]|cert[ao]|a resposta"),
    "Russian": ("ответ|вариант", "будет|является", "поэтому|следовательно|значит|выбираю", r"верн\w+|правильн\w+"),
    "Arabic": ("الإجابة|الجواب|الخيار", "هي|هو", "لذلك|إذن|وبالتالي|أختار", "الصحيح|صحيح|الإجابة|الجواب"),
    "Hindi": ("सही विकल्प|उत्तर|जवाब", "है", "इसलिए|अतः", "सही"),
}
_BEFORE_COMMA = [_LANGUAGES[name][0] for name in ("Spanish", "French", "German", "Portuguese", "Russian")]
_NAMES, _VERBS, _BEFORE, _RIGHT = ("|".join(column) for column in zip(*_LANGUAGES.values(), strict=True))
_STARTS, _ENDS = r"(?<![a-zà-ÿа-я])", r"(?![a-zà-ÿа-я])"
_WORD = r"(?: (?!no\b|n['’]|pas\b|nicht\b|não\b|не\b|ليس|नहीं|不|没)[^\s:=,.;()]{1,15})"
_ARTICLE = r"(?: ?\b(?:la|el|le|a|o|die|l['’]))?"
_KIND = r"(?: ?(?:opción|letra|option|lettre|opção|вариант|ответ|буква|الخيار|选项|選項|選択肢|विकल्प|उत्तर)(?= ))?"

ANSWER = rf"{_STARTS}(?:{_NAMES}){_WORD}{{0,2}}?(?: ?(?:{_VERBS}){_ENDS}| ?[:=—–-]|(?<=[가-힣ऀ-ॿ])(?= ))"
"""what calls the next thing the answer"""
CONCLUSION = rf"{_STARTS}(?:{_BEFORE}){_ENDS}[,:]?"
"""what concludes or chooses the next letter"""
ARTICLE = _ARTICLE + _KIND
"""what may stand before a letter: an article, and what letters are called"""
IS_RIGHT = rf"(?: ?(?:{_VERBS}){_ENDS})?{_WORD}{{0,2}}? ?{_STARTS}(?:{_RIGHT}){_ENDS}"
"""what says of the letter before it that it is right"""
NOT, BUT = rf"{_STARTS}(?:not|no es|pas|nicht|não é|не|不是)", "(?:but|sino|mais|sondern|mas|а|而是)"
"""what stands before a letter that is put aside, and between that and the one that is chosen"""
DECIMAL_COMMA = rf"{_STARTS}(?:{'|'.join(_BEFORE_COMMA)})\b"
"""words of languages that write 12,5"""

READING_VERSION = 2
"""version of how answers are read from texts; it grows when a text may be read differently"""

# A further question, another turn, or a token that ends one.
_RUN_ON = re.compile(
    r"(?:\n[^\S\n]*|(?<=[.!?)}\]*]) {1,4})(?:#{1,6} ?)?(?:\*\*)?(?:Question|Q|Human)(?:\*\*)?:"
    r"|\n(?:User:|### Instruction)|<\|(?:im_start|im_end|endoftext|end_of_text|eot_id|start_header_id|user|end)\|>|</s>"
    r"|\[INST\]|<(?:start|end)_of_turn>|<｜(?:User|end▁of▁sentence)｜>"
)
_WRAPPERS = [
    (
        re.compile(f"<{name}>", re.IGNORECASE),
        re.compile(rf"</{name}>|</CONCLUSION>|\[END FINAL RESPONSE\]", re.IGNORECASE),
    )
    for name in ("response", "answer")
]
_SAME = str.maketrans(
    {character: ascii for ascii, others in {"'": "’‘ʼ", '"': "“”„", "-": "‐‑", " ": "\u00a0\u2007\u2009\u202f"}.items()
     for character in others}
    | dict.fromkeys("\u00ad\u200b\u2060\ufeff")
)  # fmt: skip
_PLAIN = str.maketrans(
    {chr(0xFEE0 + code): chr(code) for code in range(0x21, 0x7F)} | {"。": ".", "、": ",", "٫": ".", "٬": ","}
    | {chr(zero + digit): str(digit) for zero in (0x660, 0x6F0, 0x966) for digit in range(10)}
)  # fmt: skip


class Ended(NamedTuple):
    """A text up to where it goes on as another turn or with a further question, and whether it does."""

    text: str
    goes_on: bool


def own_turn(text: str) -> Ended:
    """Return what a model says before it invents a further question or another turn."""
    started = len(text) - len(text.lstrip())
    match = _RUN_ON.search(text, started + 1)
    return Ended(text[: match.start()], True) if match else Ended(text, False)


def unwrapped(text: str) -> str:
    """Return what stands last in ``<response>`` and ``<answer>``, without the end mark of a conclusion."""
    for begin, end in _WRAPPERS:
        text = end.split(begin.split(text)[-1], maxsplit=1)[0]
    return text


def plain(text: str) -> str:
    """Return a text whose wide letters, digits and punctuation are those of ASCII, as are Arabic and Hindi digits."""
    return text.translate(_PLAIN)


def folded(text: str) -> str:
    """Return a text with one form of each apostrophe, quotation mark, hyphen, space and accent."""
    return normalize("NFC", text.translate(_SAME))


_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
MOST_NUMBER_DIGITS = 40
_DIGITS = r"\d{1,3}(?:,\d{3})+(?:\.\d{1,20})?|\d{1,20}(?:\.\d{1,20})?"


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
    (re.compile(rf"([$€£] ?(?:{_DIGITS}))([kmb]|mn|bn)\b", re.IGNORECASE), _abbreviated),
    (re.compile(rf"(?<![\w.,+*/^-])(?<![+*/^-] )(?!401k)({_DIGITS})(k)(?!\w| ?[=+*/^-])", re.IGNORECASE), _abbreviated),
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
    (re.compile(rf"(?<![\w.,])({_DIGITS})(?: ?[×x*·] ?10\^(?:\{{(-?\d{{1,2}})\}}|(-?\d{{1,2}}))(?!\d))"), _scientific),
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
_WORDED = re.compile(rf"(?<![\w.,])({_DIGITS})[ -](hundred|thousand|million|billion|trillion)\b", re.IGNORECASE)
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
_SINGLE_COMMA = re.compile(r"(?<![\d.,])(\d{1,12}),(?=\d{1,2}(?![\d,]))")
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
        solution = _SINGLE_COMMA.sub(r"\1.", solution)
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
