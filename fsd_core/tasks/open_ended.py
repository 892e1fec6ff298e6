"""Prompts without a right answer, for speed, acceptance and fidelity: our own, Spec-Bench and MT-Bench."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import zip_longest
from typing import Any

from fsd_core.errors import InvalidSetting
from fsd_core.models.model_pairs import ASSETS
from fsd_core.tasks.base import Example, Score, Task, rows

EVERYDAY = ASSETS / "everyday" / "prompts.jsonl"

# The 80 questions of multi-turn conversation carry the categories of MT-Bench.
SPEC_BENCH = {
    "mt": "multi-turn conversation", "translation": "translation", "summarization": "summarisation",
    "qa": "question answering", "math": "mathematical reasoning", "rag": "retrieval-augmented generation",
}  # fmt: skip
_NAMES = {"math_reasoning": "math", **{name: name for name in ("translation", "summarization", "qa", "rag")}}


class OpenEnded(Task):
    """Nothing is right or wrong. Only the first turn of a conversation is used."""

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


class SpeedBench(OpenEnded):
    """The qualitative split of SPEED-Bench (Abramovich et al. 2026), the first turn of its 880 conversations.

    The dataset at the hub lacks more than half of the texts. NVIDIA's ``prepare_data.py`` (Model-Optimizer,
    ``examples/specdec_bench``) gets them from where they are published, and writes the file that is read here.
    """

    name = "speed-bench"
    title = "SPEED-Bench"
    published = 880
    files = ("speed/qualitative/test.parquet",)

    def all_examples(self) -> tuple[Example, ...]:
        return _speed_bench(self.files[0])


_WITHHELD = "FULL BENCHMARK DATA SHOULD BE FETCHED"
"""how a text begins that the dataset at the hub lacks"""


@cache
def _speed_bench(file: str) -> tuple[Example, ...]:
    examples = tuple(Example(str(row["question_id"]), row["turns"][0], None, category=_kind(row)) for row in rows(file))
    if withheld := sum(example.prompt.startswith(_WITHHELD) for example in examples):
        raise InvalidSetting(
            f"The file {file} lacks the texts of {withheld} of {len(examples)} prompts, as the one at the hub does: "
            "make the whole one with NVIDIA's prepare_data.py (docs/benchmarks.md)."
        )
    return examples


class MtBench(OpenEnded):
    """MT-Bench (Zheng et al. 2023), the first turn of its 80 conversations."""

    name = "mt-bench"
    title = "MT-Bench"
    files = ("mtbench/mt_bench/question.jsonl",)

    def all_examples(self) -> tuple[Example, ...]:
        return _first_turns(self.files[0], None)


class SpecBench(OpenEnded):
    """One of the six categories of Spec-Bench (Xia et al. 2024), 80 prompts each."""

    files = ("specbench/question.jsonl",)

    def __init__(self, category: str) -> None:
        self.name, self.category = f"spec-bench-{category}", category
        self.title = f"Spec-Bench, {SPEC_BENCH[category]}"

    def all_examples(self) -> tuple[Example, ...]:
        return _first_turns(self.files[0], self.category)


class WholeSpecBench(OpenEnded):
    """All of Spec-Bench, whose categories alternate, so that any number of first prompts is a mix."""

    name = "spec-bench"
    title = "Spec-Bench, all categories"
    files = SpecBench.files

    def all_examples(self) -> tuple[Example, ...]:
        return _spec_bench(self.files[0])


@cache
def _spec_bench(file: str) -> tuple[Example, ...]:
    parts = [
        [replace(example, category=title) for example in _first_turns(file, category)]
        for category, title in SPEC_BENCH.items()
    ]
    return tuple(example for turn in zip_longest(*parts) for example in turn if example is not None)


def _kind(row: dict[str, Any]) -> str:
    return str(row.get("category", "")).replace("_", " ")


@cache
def _first_turns(file: str, category: str | None) -> tuple[Example, ...]:
    return tuple(
        Example(str(row["question_id"]), row["turns"][0], None, category=_kind(row) if category is None else "")
        for row in rows(file)
        if category is None or _NAMES.get(row["category"], "mt") == category
    )
