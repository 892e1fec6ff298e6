"""What a model thinks is not its answer: it is found, counted, and scored by nobody."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from fsd_core.models.conversation import MARKS, is_mark, opens_thought, split_thoughts
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.reading import check
from fsd_core.tasks.custom.scorers import SCORERS

FORMS = [json.loads(line) for line in Path("tests/forms/thoughts.jsonl").read_text(encoding="utf-8").splitlines()]
"""what texts of families say outside of their thoughts, and why"""


def custom_task(scorer: str, reference: str | None) -> CustomTask:
    line = {"prompt": "Which?", "reference": reference} if reference else {"prompt": "Which?"}
    return CustomTask.of("which", check(json.dumps(line).encode(), scorer))


HARMONY = (
    "<|channel|>analysis<|message|>Is it A? No.<|end|><|start|>assistant<|channel|>commentary<|message|>A?<|end|>"
    "<|start|>assistant<|channel|>final<|message|>B<|return|>"
)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("B", "B"),
        ("", ""),
        ("<think>\nA? No.\n</think>\n\nB", "B"),
        ("<think>\n\n</think>\n\nB", "B"),
        ("A? No.\n</think>\n\nB", "B"),  # begun in the prompt
        ("B <think>no, A</think>, or C", "B , or C"),
        ("<think>a</think>B\nor</think>\nC", "C"),  # it went on thinking
        ("<think>a </thinking> b</think>C", "C"),
        (HARMONY, "B"),
        (HARMONY.replace("<|return|>", ""), "B"),
        ("analysisIs it A? No.assistantfinalB", "B"),
        ("analysis Is it A? No. assistantfinal B", " B"),
        ("analysisA?assistantcommentaryNo.assistantfinalB", "B"),
        ("analysis of the data: B", "analysis of the data: B"),
        ("Analysis: B", "Analysis: B"),
        *((f"{begin}A?{end}\nB", "B") for begin, end in MARKS),
    ],
)
def test_the_answer_is_what_stands_outside_of_thoughts(text: str, answer: str) -> None:
    found = split_thoughts(text)
    assert (found.answer, found.is_open) == (answer, False)
    assert all(0 <= start < end <= len(text) for start, end in found.thoughts)
    assert bool(found.thoughts) == (text != answer)


@pytest.mark.parametrize("form", FORMS, ids=[form["text"][:50] for form in FORMS])
def test_a_thought_of_another_family_is_no_answer(form: dict[str, Any]) -> None:
    found = split_thoughts(form["text"], thinking=form["thinking"])
    assert (found.answer, found.is_open) == (form["answer"], form["is_open"]), form["why"]


@pytest.mark.parametrize(
    "name", ["<think:opensource>", "<think:6124c78e>", "<|channel>thought", "<REASONING_SCRATCHPAD>"]
)
def test_a_prompt_may_open_the_thought_of_another_family(name: str) -> None:
    assert opens_thought(f"<|assistant|>{name}\n")
    assert not opens_thought(f"<|assistant|>{name}\n", marks=(("<plan>", "</plan>"),))


def test_marks_of_a_task_of_its_own_are_the_only_ones() -> None:
    text = "<think:a>A?</think:a><plan>C?</plan>B"
    assert split_thoughts(text, marks=(("<plan>", "</plan>"),)).answer == "<think:a>A?</think:a>B"


def test_a_token_that_is_a_mark_stays_in_texts() -> None:
    assert all(map(is_mark, ("<|channel>", "<channel|>", "<|inner_suffix|>", "</think:6124c78e>", "<think>")))
    assert not any(map(is_mark, ("<|im_end|>", "</s>", "<turn|>", "think")))


@pytest.mark.parametrize(
    ("text", "thinking"),
    [
        ("<think>\nIt is B", False),
        ("It is B", True),
        ("", True),
        ("<think>It is B", True),
        ("C <think>or B", False),
        ("<|channel|>analysis<|message|>It is B", False),
        ("<|channel|>analysis<|message|>It is B<|end|><|start|>assistant", False),
        ("analysisIt is B", False),
    ],
)
def test_a_thought_that_never_ends_has_no_answer_behind_it(text: str, thinking: bool) -> None:
    found = split_thoughts(text, thinking=thinking)
    assert found.is_open
    assert "B" not in found.answer


def test_a_thought_begun_in_the_prompt_may_end_in_the_text() -> None:
    assert split_thoughts("A?</think>\nB", thinking=True) == ("B", ((0, 10),), False)
    assert opens_thought("<|im_start|>assistant\n<think>\n")
    assert not opens_thought("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not opens_thought("What does <think> mean?")


@pytest.mark.parametrize(
    "piece",
    [
        "<think>",
        "</think>",
        "<|channel|>",
        "<|channel|>a",
        "<|channel|>final<|message|>",
        "analysis ",
        "assistant ",
        "<think:a>",
        "<thinkthink",
        "Here is my response:",
        "a" * 19 + "think",
    ],
)
def test_any_text_is_split_in_linear_time(piece: str) -> None:
    def seconds(count: int) -> float:
        best = 1e9
        for _ in range(3):
            began = time.process_time()
            split_thoughts("analysis" * (piece[0] == "a") + piece * count + "x" * count)
            best = min(best, time.process_time() - began)
        return best

    assert seconds(40_000) < 40 * max(seconds(4_000), 1e-3)  # a square would be a hundred times as much


@pytest.mark.parametrize(
    ("scorer", "reference", "right", "thought"),
    [
        ("number", "18", "#### 18", "\\boxed{20}? No, 18."),
        ("choice", "B", "B", "Option A is a stone. No."),
        ("exact", "Paris", "Paris", "Lyon"),
        ("contains", "Paris", "It is Paris.", "Lyon, or Nice?"),
        ("regex", "^Par.s$", "Paris", "Lyon"),
    ],
)
def test_no_scorer_reads_a_thought(scorer: str, reference: str, right: str, thought: str) -> None:
    task = custom_task(scorer, reference)
    example = task.all_examples()[0]
    assert task.score(f"<think>{thought}</think>\n\n{right}", example, "eos") == task.score(right, example, "eos")
    assert task.score(f"<think>{thought}</think>\n\n{right}", example, "eos").outcome == "correct"
    assert task.score(f"<think>{right}</think>\n\nI do not know.", example, "eos").outcome == "wrong"
    for stop_reason in ("eos", "length"):
        assert task.score(f"<think>{right}\n", example, stop_reason).outcome == "truncated"
        assert task.score(f"{right}\n", example, stop_reason, thinking=True).outcome == "truncated"


def test_a_fidelity_task_stays_unscored() -> None:
    task = custom_task("none", None)
    assert task.score("<think>B", task.all_examples()[0], "length").outcome == "unscored"
    assert set(SCORERS) == {"number", "choice", "exact", "contains", "regex", "none"}


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think>b</think>\n\nC",
        "<think>a<think>b</think>c</think>\nC",
        "<think>a</think><think>b</think>C",
        "</think>\n<think>\nB\n</think>C",
    ],
)
def test_thoughts_that_are_closed_twice_or_nested_leave_the_last_answer(text: str) -> None:
    split = split_thoughts(text)
    assert (split.answer.strip(), split.is_open) == ("C", False)
