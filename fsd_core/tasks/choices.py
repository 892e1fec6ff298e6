"""Multiple choice, answered with a letter."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fsd_core.errors import UnfitTask
from fsd_core.settings import get_settings
from fsd_core.tasks.base import Example, Score, Split, Task, as_lines, as_table, cut_off, judged, rows
from fsd_core.tasks.readings import ANSWER, ARTICLE, BUT, CONCLUSION, IS_RIGHT, NOT, own_turn, plain, unwrapped

LETTERS = "ABCDEFGHIJKLM"
SUBJECTS = 57  # of MMLU
_MARKUP = re.compile(r"\\(?:text|textbf|mathrm|mathbf) ?(?=\{)|\\[()\[\]]|[$*_`]")  # bold type, code and LaTeX
_JOINED = re.compile(r"(?<=[A-M])(?=[぀-ヿ㐀-鿿가-힣])|(?<=[぀-ヿ㐀-鿿가-힣])(?=[A-M](?![A-Za-z]))")

# A letter ends a sentence, a line or a bracket, or is a capital that is not a word as in "a dog", "I think", "D'oh".
_ENDS = r"(?=[ \t]*(?:[,:;!?)\]}\"”\n]|\.(?!\w)|\Z))"
_ENDED = rf"[A-HJ-Mb-hj-m]{_ENDS}|[AIai](?=[ \t]*(?:[:)\]}}\n]|\.(?!\w)|\Z))"
_UNDECIDED = r"(?![)\]]? or (?:option )?[A-M]\b)"
_LETTERED = rf"[(\[{{\"“]{{0,2}}({_ENDED}|[A-HJ-M]\b(?!['’-]|\.\w\.)){_UNDECIDED}"
# At the start of a sentence, "A dog" begins with a word and "A is right" with a letter.
_BEGINNING = rf"\s{{0,9}}[(\[{{\"“]{{0,2}}({_ENDED}|[B-HJ-M]\b(?!['’-]|\.\w\.)|A(?=\s(?:is|as|because|since)\b))"
_WITHIN = rf"(?:[ \t:]{{0,4}}(?:(?i:the )?(?i:option|choice|letter) )?{_LETTERED}|[ \t]?:?[ \t]{{0,4}}\n{_BEGINNING})"
_FIRST = re.compile(_BEGINNING)
_ANSWER = r"(?i:\b(?:answer|ans|solution|result|verdict|final|selection|pick)\W?[:=])"
_NAMED = (
    re.compile(rf"\\boxed ?\{{{_WITHIN}"),
    re.compile(
        rf"(?i:answer\W{{0,3}}(?:(?:is|would be|must be|should be)\b)){_WITHIN}|{_ANSWER}{_BEGINNING}"
        rf"|(?i:{ANSWER})(?i:{ARTICLE}){_WITHIN}"
    ),
    re.compile(rf"(?i:correct|right|best) (?i:choice|option)(?i:\W{{0,2}}|\s(?:is|would be)\b){_WITHIN}"),
)
_OPTION = re.compile(rf"(?i:choice|option)\W?(?i:\s(?:is|would be|must be|should be)\b)?{_WITHIN}")
_CONCLUDED = re.compile(
    r"(?:\b(?i:so|thus|hence|therefore|is|be|it['’]s|choose|pick|select|go with|going with|settle on|leaves|meant|"
    r"I(?:['’](?:d|ll)| would)? (?:say|guess|take|opt for|vote for))[,:]?(?=\s)|"
    rf"(?i:{CONCLUSION})(?i:{ARTICLE})){_WITHIN}"
)
_LETTER = r"(?<![\w'’])[(\[]?([A-HJ-M])\b[)\]]?"
_VERB = r"(?:is|was|seems|looks|sounds|fits|makes|must be|would be|has to be)"
# "C is right", "D makes the most sense"; not "A is not right".
_FAVOURED = re.compile(
    rf"{_LETTER}(?: {_VERB}\b(?: (?!not\b|never\b|wrong\b|less\b|the wrong\b)\w+){{0,3}}? ?\b"
    rf"(?:right|correct|best|answer|true|sense|likely)\b|(?i:{IS_RIGHT}))"
)
_RATHER = re.compile(rf"(?i:{NOT}) (?:option )?[A-M]\b[),]* (?i:{BUT}) (?:rather )?(?:option )?{_LETTER}")
# What follows a letter that is put aside, or that stands beside another.
_OTHERS = rf"(?:(?:, ?|,? (?:and|or|nor) )(?:option )?{_LETTER}){{0,9}}"
_PUT_ASIDE = re.compile(
    rf"[)\]]?{_OTHERS}(?: {_VERB}| can be| are| could be)"
    r"(?: \w+){0,2}? ?\b(?:wrong|incorrect|false|not|out|impossible|plausible|possible|too)\b|[)\]]? (?:too|either)\b"
    rf"|[)\]]?(?:, ?|,? or ){_LETTER}\W{{0,3}}\?"
)
_DISCUSSED = re.compile(rf"[)\]]? {_VERB}\b")
# The last line is a letter alone or ends in an arrow and a letter, or is the only one that begins with a letter.
_CLOSING = re.compile(r"(?:\n[^\S\n]*|(?<!\b[A-Z] )(?:=>|[→⇒∴]))[^\w\n~¬]{0,6}([A-Ma-m])[^\w\n…]{0,4}\Z")
_LISTED = re.compile(r"^[^\w\n]{0,3}([A-M])[).:][) ]", re.MULTILINE)
_CORRECTION = re.compile(
    r"\b(?:wait|hold on|actually|correction|scratch that|oops|sorry|on second thought|my mistake)\b[,:.!—-]?",
    re.IGNORECASE,
)


def chosen_letter(text: str, cut: bool = False) -> str | None:
    """Return the letter that a text chooses, or ``None``.

    It is the letter in ``<answer>`` or ``<response>``; else that at the beginning, unless it is put aside ("A is wrong
    because") or only discussed ("A is cold"); else the first after ``\\boxed{``, after "answer" or its like in another
    language, in "C is right" and "not A but B"; else a last line of one letter; else the first after "option" or
    "choice"; else the last after words such as "so" and "would be". If a text takes its choice back ("wait"), it
    chooses what it says behind that, if it says a choice there. ``cut``: whether the text was cut off. An "a" at its
    end may then be an article.
    """
    answer, goes_on = own_turn(text)
    answer = _JOINED.sub(" ", _MARKUP.sub("", plain(answer)))
    inside = unwrapped(answer)
    if inside != answer and (letter := chosen_letter(inside, cut and answer.endswith(inside))):
        return letter
    end = "…" if cut and not goes_on else ""
    first, *later = _CORRECTION.split(answer)
    for part in reversed(later):
        if letter := _named(part + end) or (part is later[-1] and _closing(part + end)) or _concluded(part + end):
            return letter
    return _chosen(first, end if not later else "")


def _chosen(answer: str, end: str) -> str | None:
    """Return the letter that a text chooses which takes nothing back."""
    match = _FIRST.match(answer)
    is_choice = match and not _PUT_ASIDE.match(answer, match.end(1))
    is_discussed = match and _DISCUSSED.match(answer, match.end(1)) and not _FAVOURED.match(answer, match.start(1))
    if match and is_choice and not is_discussed:
        return match[1].upper()
    answer += end
    letter = _named(answer) or _closing(answer) or _listed(answer)
    return letter or (match[1].upper() if match and is_choice else _mentioned(answer) or _concluded(answer))


def _named(answer: str) -> str | None:
    """Return the letter that a text calls its answer."""
    for pattern in (*_NAMED, _RATHER, _FAVOURED):
        if match := pattern.search(answer):
            return _letter_in(match)
    return None


def _closing(answer: str) -> str | None:
    """Return the letter that is a text's last line."""
    match = _CLOSING.search(answer.rstrip())
    return match[1].upper() if match else None


def _listed(answer: str) -> str | None:
    """Return the letter that begins the last line, if no other line begins with one: the options may be listed."""
    listed = list(_LISTED.finditer(answer))
    is_last = len(listed) == 1 and "\n" not in answer[listed[0].start() :].rstrip()
    return listed[0][1] if is_last and not answer.endswith("…") else None


def _mentioned(answer: str) -> str | None:
    """Return the first option that a text names and does not put aside."""
    named = (match for match in _OPTION.finditer(answer) if not _PUT_ASIDE.match(answer, match.end()))
    return next(map(_letter_in, named), None)


def _concluded(answer: str) -> str | None:
    letters = list(map(_letter_in, _CONCLUDED.finditer(answer)))
    return letters[-1] if letters else None


def _letter_in(match: re.Match[str]) -> str:
    return next(filter(None, match.groups())).upper()


def multiple_choice(question: str, choices: list[str], answer: str = "") -> str:
    """Return a question with lettered choices, followed by its answer if it is a worked example."""
    lettered = "".join(f"{letter}. {choice}\n" for letter, choice in zip(LETTERS, choices, strict=False))
    return f"{question}\n{lettered}Answer:{answer}"


class Choices(Task):
    """Scored by the chosen letter, see :func:`chosen_letter`."""

    def score_answer(self, text: str, example: Example, stop_reason: str) -> Score:
        return judged(chosen_letter(text, cut_off(stop_reason)), example, stop_reason)


def _csqa_lines(records: Iterable[dict[str, Any]]) -> str:
    """Return the content of the authors' file, made from the hub's records."""
    return as_lines(
        {
            "answerKey": row["answerKey"],
            "id": row["id"],
            "question": {
                "question_concept": row["question_concept"],
                "choices": [
                    {"label": label, "text": text}
                    for label, text in zip(row["choices"]["label"], row["choices"]["text"], strict=True)
                ],
                "stem": row["question"],
            },
        }
        for row in records
    )


class CommonsenseQA(Choices):
    """CommonsenseQA (Talmor et al. 2019): the 1,221 labelled questions of its dev split, each after three of the
    training split. The test split's labels are not public."""

    name = "csqa"
    title = "CommonsenseQA"
    published = 1221
    files = ("csqa/dev_rand_split.jsonl", "csqa/train_rand_split.jsonl")
    hub = tuple(
        Split(f"csqa/{name}_rand_split.jsonl", "tau/commonsense_qa", "MIT", None, split, _csqa_lines)
        for name, split in (("dev", "validation"), ("train", "train"))
    )

    def all_examples(self) -> tuple[Example, ...]:
        return _csqa()


@cache
def _csqa() -> tuple[Example, ...]:
    def as_prompt(row: dict, answer: str = "") -> str:
        return multiple_choice(
            row["question"]["stem"], [choice["text"] for choice in row["question"]["choices"]], answer
        )

    shots = "".join(f"{as_prompt(row, ' ' + row['answerKey'])}\n\n" for row in rows("csqa/train_rand_split.jsonl")[:3])
    return tuple(
        Example(row["id"], shots + as_prompt(row), row["answerKey"]) for row in rows("csqa/dev_rand_split.jsonl")
    )


def _mmlu_table(records: Iterable[dict[str, Any]]) -> str:
    return as_table([row["question"], *row["choices"], LETTERS[row["answer"]]] for row in records)


class Mmlu(Choices):
    """MMLU test (Hendrycks et al. 2021): each question after its subject's five dev questions, in the authors' wording.

    The subjects alternate, so that the first prompts cover them all.
    """

    name = "mmlu"
    title = "MMLU"
    published = 14_042
    files = ("mmlu/<subject>_dev.csv", "mmlu/<subject>_test.csv")
    hub = tuple(
        Split(f"mmlu/<subject>_{split}.csv", "cais/mmlu", "MIT", "all", split, _mmlu_table, files=SUBJECTS)
        for split in ("dev", "test")
    )

    @property
    def has_files(self) -> bool:
        return len(_subjects(get_settings().data_folder / "mmlu")) == SUBJECTS

    def all_examples(self) -> tuple[Example, ...]:
        return _mmlu(get_settings().data_folder / "mmlu")


@cache
def _mmlu(folder: Path) -> tuple[Example, ...]:
    names = _subjects(folder)
    if len(names) != SUBJECTS:
        raise UnfitTask(
            f"The folder {folder} has {len(names)} of MMLU's {SUBJECTS} subjects: expected <subject>_dev.csv and "
            "<subject>_test.csv of each. Set FSD_DATA_DIR to the folder that has mmlu/ whole."
        )
    subjects = [_subject(name) for name in names]
    return tuple(example for turn in zip_longest(*subjects) for example in turn if example is not None)


def _subjects(folder: Path) -> list[str]:
    """Return the subjects with both files, in alphabetical order."""
    tested = sorted(file.name.removesuffix("_test.csv") for file in folder.glob("*_test.csv"))
    return [name for name in tested if (folder / f"{name}_dev.csv").is_file()]


def _subject(name: str) -> list[Example]:
    topic = name.replace("_", " ")
    head = f"The following are multiple choice questions (with answers) about {topic}.\n\n"
    shots = "".join(
        f"{multiple_choice(row[0], row[1:5], ' ' + row[5])}\n\n" for row in rows(f"mmlu/{name}_dev.csv")[:5]
    )
    return [
        Example(f"{name}-{i:04d}", head + shots + multiple_choice(row[0], row[1:5]), row[5])
        for i, row in enumerate(rows(f"mmlu/{name}_test.csv"))
    ]


def _truthfulqa_table(records: Iterable[dict[str, Any]]) -> str:
    head = ["Type", "Category", "Question", "Best Answer", "Correct Answers", "Incorrect Answers", "Source"]
    body = (
        [
            row["type"], row["category"], row["question"], row["best_answer"], "; ".join(row["correct_answers"]),
            "; ".join(row["incorrect_answers"]), row["source"],
        ]
        for row in records
    )  # fmt: skip
    return as_table([head, *body])


class TruthfulQa(Choices):
    """TruthfulQA MC1 (Lin et al. 2022), zero-shot: the best answer among the wrong ones.

    The question alone seeds the order of the choices.
    """

    name = "truthfulqa"
    title = "TruthfulQA, one right choice"
    published = 817
    files = ("truthfulqa/TruthfulQA.csv",)
    hub = (Split(files[0], "truthfulqa/truthful_qa", "Apache 2.0", "generation", "validation", _truthfulqa_table),)

    def all_examples(self) -> tuple[Example, ...]:
        return _truthfulqa()


@cache
def _truthfulqa() -> tuple[Example, ...]:
    header, *records = rows("truthfulqa/TruthfulQA.csv")
    columns = {name: header.index(name) for name in ("Question", "Best Answer", "Incorrect Answers")}
    examples = []
    for i, row in enumerate(records):
        question, best = row[columns["Question"]], row[columns["Best Answer"]].strip()
        wrong = [text.strip() for text in row[columns["Incorrect Answers"]].split(";") if text.strip()]
        choices = [best, *wrong[: len(LETTERS) - 1]]
        random.Random(question).shuffle(choices)
        prompt = multiple_choice(f"{question}\nWhich of these is true? Answer with its letter.", choices)
        examples.append(Example(f"truthfulqa-{i:04d}", prompt, LETTERS[choices.index(best)]))
    return tuple(examples)


_WRONG = tuple(f"Incorrect Answer {i}" for i in (1, 2, 3))
_COLUMNS = ("Record ID", "Question", "Correct Answer", *_WRONG, "High-level domain")


def _csv(records: Iterable[dict[str, Any]]) -> str:
    return as_table([_COLUMNS, *([row[name] for name in _COLUMNS] for row in records)])


class Gpqa(Choices):
    """GPQA Diamond (Rein et al. 2024), zero-shot, step by step. The question alone seeds the order of the choices."""

    name = "gpqa-diamond"
    title = "GPQA Diamond"
    published = 198
    published_filter = r"(?i)Answer[ \t]*:[ \t]*\$?([A-D])\$?"  # of simple-evals
    files = ("gpqa/gpqa_diamond.csv",)
    hub = (Split(files[0], "Idavidrein/gpqa", "CC BY 4.0", "gpqa_diamond", "train", _csv),)

    def all_examples(self) -> tuple[Example, ...]:
        return _gpqa(self.files[0])


@cache
def _gpqa(file: str) -> tuple[Example, ...]:
    header, *records = rows(file)
    return tuple(_example(dict(zip(header, record, strict=True))) for record in records)


def _example(row: dict[str, str]) -> Example:
    question, right = row["Question"].strip(), row["Correct Answer"].strip()
    choices = [right, *(row[name].strip() for name in _WRONG)]
    random.Random(question).shuffle(choices)
    told = "Think step by step. End with a line 'Answer: ' and the letter of the right choice.\n\n"
    prompt = multiple_choice(told + question, choices).removesuffix("Answer:")
    return Example(row["Record ID"], prompt, LETTERS[choices.index(right)], category=row["High-level domain"])
