"""Prompts without a right answer, for speed, acceptance and fidelity: our own, Spec-Bench and MT-Bench."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import zip_longest
from typing import Any

from fsd_core.errors import UnfitTask
from fsd_core.models.model_pairs import ASSETS
from fsd_core.tasks.base import Example, Score, Task, in_turns, rows

EVERYDAY = ASSETS / "everyday" / "prompts.jsonl"

# The 80 questions of multi-turn conversation carry the categories of MT-Bench.
SPEC_BENCH = {
    "mt": "multi-turn conversation", "translation": "translation", "summarization": "summarisation",
    "qa": "question answering", "math": "mathematical reasoning", "rag": "retrieval-augmented generation",
}  # fmt: skip
_NAMES = {"math_reasoning": "math", **{name: name for name in ("translation", "summarization", "qa", "rag")}}


class OpenEnded(Task):
    """Nothing is right or wrong."""

    scored = False

    def score_answer(self, text: str, example: Example, stop_reason: str) -> Score:
        return Score("unscored", None)


class Everyday(OpenEnded):
    """Typical prompts to a chat model, written for this program: ten prompts for each of eight kinds.

    The kinds alternate, so that any number of first prompts is a mix: question, explanation, summary of a passage,
    rewriting, list, code, dialogue, translation.
    """

    name = "everyday"
    title = "Everyday prompts"

    def all_examples(self) -> tuple[Example, ...]:
        return _everyday()


@cache
def _everyday() -> tuple[Example, ...]:
    with EVERYDAY.open(encoding="utf-8") as lines:
        return tuple(Example(row["id"], row["prompt"], None) for row in map(json.loads, lines))


class Conversations(OpenEnded):
    """A benchmark whose conversations have several user turns.

    With ``turns`` each of them is a prompt, which follows what the setting wrote before. Otherwise only the first turn
    is asked, so that all settings are asked the same.
    """

    def __init__(self, name: str, title: str, *, turns: bool = False) -> None:
        self.name, self.title = (f"{name}-turns", f"{title}, all turns") if turns else (name, title)
        self.turns = turns


class SpeedBench(Conversations):
    """The qualitative split of SPEED-Bench (Abramovich et al. 2026), of 880 conversations.

    The dataset at the hub lacks more than half of the texts. NVIDIA's ``prepare_data.py`` (Model-Optimizer,
    ``examples/specdec_bench``) gets them from where they are published, and writes the file that is read here.
    """

    files = ("speed/qualitative/test.parquet",)

    def __init__(self, *, turns: bool = False) -> None:
        super().__init__("speed-bench", "SPEED-Bench", turns=turns)
        self.published = None if turns else 880

    def all_examples(self) -> tuple[Example, ...]:
        return _speed_bench(self.files[0], self.turns)


_WITHHELD = "FULL BENCHMARK DATA SHOULD BE FETCHED"
"""how a text begins that the dataset at the hub lacks"""


@cache
def _speed_bench(file: str, turns: bool) -> tuple[Example, ...]:
    examples = tuple(example for row in rows(file) for example in _asked(row, _kind(row), turns))
    if withheld := sum(example.prompt.startswith(_WITHHELD) for example in examples):
        raise UnfitTask(
            f"The file {file} lacks the texts of {withheld} of {len(examples)} prompts, as the one at the hub does: "
            "make the whole one with NVIDIA's prepare_data.py (docs/benchmarks.md)."
        )
    return examples


class MtBench(Conversations):
    """MT-Bench (Zheng et al. 2023), of 80 conversations in two turns."""

    files = ("mtbench/mt_bench/question.jsonl",)

    def __init__(self, *, turns: bool = False) -> None:
        super().__init__("mt-bench", "MT-Bench", turns=turns)

    def all_examples(self) -> tuple[Example, ...]:
        return _flat(_conversations(self.files[0], None, self.turns))


class SpecBench(Conversations):
    """One of the six categories of Spec-Bench (Xia et al. 2024), 80 questions each. Those of ``mt`` have two turns."""

    files = ("specbench/question.jsonl",)

    def __init__(self, category: str, *, turns: bool = False) -> None:
        super().__init__(f"spec-bench-{category}", f"Spec-Bench, {SPEC_BENCH[category]}", turns=turns)
        self.category = category

    def all_examples(self) -> tuple[Example, ...]:
        return _flat(_conversations(self.files[0], self.category, self.turns))


class WholeSpecBench(Conversations):
    """All of Spec-Bench, whose categories alternate, so that any number of first prompts is a mix."""

    files = SpecBench.files

    def __init__(self, *, turns: bool = False) -> None:
        super().__init__("spec-bench", "Spec-Bench, all categories", turns=turns)

    def all_examples(self) -> tuple[Example, ...]:
        return _spec_bench(self.files[0], self.turns)


@cache
def _spec_bench(file: str, turns: bool) -> tuple[Example, ...]:
    parts = [
        [[replace(example, category=title) for example in asked] for asked in _conversations(file, category, turns)]
        for category, title in SPEC_BENCH.items()
    ]
    return _flat(asked for row in zip_longest(*parts, fillvalue=()) for asked in row)


def _flat(conversations: Iterable[Iterable[Example]]) -> tuple[Example, ...]:
    return tuple(example for asked in conversations for example in asked)


def _kind(row: dict[str, Any]) -> str:
    return str(row.get("category", "")).replace("_", " ")


@cache
def _conversations(file: str, category: str | None, turns: bool) -> tuple[tuple[Example, ...], ...]:
    return tuple(
        _asked(row, _kind(row) if category is None else "", turns)
        for row in rows(file)
        if category is None or _NAMES.get(row["category"], "mt") == category
    )


def _asked(row: dict[str, Any], category: str, turns: bool) -> tuple[Example, ...]:
    """Return the prompts of a row: its first turn, or all of them."""
    first, *later = row["turns"]
    return in_turns(Example(str(row["question_id"]), first, None, category=category), later if turns else ())
