"""GPQA: questions of graduates in biology, chemistry and physics."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache
from typing import Any

from fsd_core.tasks.base import Example
from fsd_core.tasks.benchmark_files import Split, as_table, rows
from fsd_core.tasks.choices import LETTERS, Choices, multiple_choice

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
