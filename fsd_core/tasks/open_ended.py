"""Prompts without a right answer, for speed, acceptance and fidelity: our own, Spec-Bench and MT-Bench."""

from __future__ import annotations

import json
from functools import cache

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


@cache
def _first_turns(file: str, category: str | None) -> tuple[Example, ...]:
    return tuple(
        Example(str(row["question_id"]), row["turns"][0], None)
        for row in rows(file)
        if category is None or _NAMES.get(row["category"], "mt") == category
    )
