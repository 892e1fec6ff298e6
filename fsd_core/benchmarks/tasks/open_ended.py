"""Prompts without a right answer, for speed, acceptance and fidelity: Spec-Bench and MT-Bench."""

from __future__ import annotations

from functools import cache

from fsd_core.benchmarks.tasks.base import Example, Score, Task, rows

# The 80 questions of multi-turn conversation have the categories of MT-Bench.
SPEC_BENCH = {
    "mt": "multi-turn conversation", "translation": "translation", "summarization": "summarisation",
    "qa": "question answering", "math": "mathematical reasoning", "rag": "retrieval-augmented generation",
}  # fmt: skip
_NAMES = {"math_reasoning": "math", **{name: name for name in ("translation", "summarization", "qa", "rag")}}


class OpenEnded(Task):
    """Nothing is right or wrong: of a conversation the first turn is asked."""

    def score(self, text: str, example: Example, stop_reason: str) -> Score:
        return Score("unscored", None)


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
