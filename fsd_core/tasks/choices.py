"""Multiple choice, answered with a letter: CommonsenseQA, MMLU and TruthfulQA."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fsd_core.errors import InvalidSetting
from fsd_core.settings import get_settings
from fsd_core.tasks.base import Example, Score, Split, Task, as_lines, as_table, cut_off, judged, rows

LETTERS = "ABCDEFGHIJKLM"
SUBJECTS = 57  # of MMLU
_QUESTION = re.compile(r"\n[^\S\n]*(?:Question|Q):")
_MARKUP = re.compile(r"\\(?:text|textbf|mathrm|mathbf) ?(?=\{)|\\[()\[\]]|[$*_]")  # bold type and LaTeX

# A letter ends a sentence, a line or a bracket, or is a capital that is not a word as in "a dog", "I think", "D'oh".
_ENDS = r"(?=[ \t]*(?:[,:;!?)\]}\"”\n]|\.(?!\w)|\Z))"
_ENDED = rf"[A-HJ-Mb-hj-m]{_ENDS}|[AIai](?=[ \t]*(?:[:)\]}}\n]|\.(?!\w)|\Z))"
_WITHIN = rf"[ \t:]{{0,4}}[(\[{{\"“]{{0,2}}({_ENDED}|[A-HJ-M]\b(?!['’-]|\.\w\.))"
# At the start of a sentence, "A dog" begins with a word and "A is right" with a letter.
_BEGINNING = rf"\s{{0,9}}[(\[{{\"“]{{0,2}}({_ENDED}|[B-HJ-M]\b(?!['’-]|\.\w\.)|A(?=\s(?:is|as|because|since)\b))"
_FIRST = re.compile(_BEGINNING)
_NAMED = (
    re.compile(rf"\\boxed ?\{{{_WITHIN}"),
    re.compile(rf"(?i:answer\W{{0,3}}(?:(?:is|would be|must be|should be)\b)){_WITHIN}|(?i:answer\W?[:=]){_BEGINNING}"),
    re.compile(rf"(?i:choice|option)\W?(?i:\s(?:is|would be|must be|should be)\b)?{_WITHIN}"),
)
_CONCLUDED = re.compile(rf"\b(?i:so|thus|hence|therefore|is|be|choose|pick|select),?(?=\s){_WITHIN}")


def chosen_letter(text: str, cut: bool = False) -> str | None:
    """Return the letter that a text chooses, or ``None``.

    It is the letter at the beginning; else the first after ``\\boxed{``, after "answer", or after "option" or "choice";
    else the last after words such as "so" and "would be". ``cut``: whether the text was cut off. An "a" at its end may
    then be an article.
    """
    answer, *continuation = _QUESTION.split(text, maxsplit=1)
    answer = _MARKUP.sub("", answer)
    if match := _FIRST.match(answer):
        return match[1].upper()
    answer += "…" if cut and not continuation else ""
    named = next((match for pattern in _NAMED if (match := pattern.search(answer))), None)
    letters = [letter for letter in named.groups() if letter] if named else _CONCLUDED.findall(answer)
    return letters[-1].upper() if letters else None


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
        raise InvalidSetting(
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
