"""Tasks that ship or are read from files: their prompts, their categories and their scores."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from dashboard.runs.opened_run import categories_html
from fsd_core.analysis.cells import by_category
from fsd_core.config import RunConfig
from fsd_core.errors import OutOfRange, UnfitTask, UnknownName
from fsd_core.storage.records import PromptCounts
from fsd_core.tasks import TASKS, Example, Score, Task, get_task
from fsd_core.tasks.choices import Gpqa
from fsd_core.tasks.open_ended import EVERYDAY
from fsd_core.tasks.word_problems import ARITHMETIC_PROBLEMS
from fsd_plugins.training import generators
from fsd_plugins.training.held_out import ARITHMETIC_PROBLEM_COUNT, write_long

TASK = get_task("arithmetic")
SEVEN = Example("x", "", "7")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (" First, 3 + 4 = 7. So the answer is 7.\n#### 7", "7"),
        ("#### 7\n", "7"),
        ("#### 7 \r\n", "7"),
        ("####   7", "7"),
        ("#### -7", "-7"),
        ("#### 007", "7"),
        ("#### -0", "0"),
        ("#### 3\n#### 7", "7"),  # the last one counts
        ("#### 7\nQuestion: Ava has 3 eggs.\nAnswer: First, 3", "7"),
        ("#### 7\n#### 8.5", "7"),  # only integers are answers
        ("#### 7.0", None),
        ("#### 7,000", None),
        ("#### 7 apples", None),
        ("#### 7 8", None),
        ("#### seven", None),
        ("#### ٧", None),  # a digit of another script
        ("####7", None),
        ("### 7", None),
        ("##### 7", None),
        ("the answer is #### 7", None),  # not on its own line
        ("#### ", None),
        ("####\n7", None),
        ("#### " + "9" * 5000, None),
        ("7", None),
        ("", None),
    ],
)
def test_the_answer_is_the_last_well_formed_line(text: str, answer: str | None) -> None:
    score = TASK.score(text, SEVEN, "eos")
    assert score == Score("correct" if answer == "7" else "wrong", answer)


@pytest.mark.parametrize("stop_reason", ["length", "context"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" First, 3 + 4", Score("truncated", None)),
        ("", Score("truncated", None)),
        ("#### 7", Score("truncated", None)),  # perhaps it was to be 71
        ("#### 7\n", Score("correct", "7")),
        ("#### 7\nQuestion:", Score("correct", "7")),
        ("#### 8\nQuestion:", Score("wrong", "8")),
        ("#### 7\n#### 1", Score("truncated", None)),
    ],
)
def test_a_text_that_was_cut_off_has_an_answer_only_if_it_is_complete(
    text: str, expected: Score, stop_reason: str
) -> None:
    assert TASK.score(text, SEVEN, stop_reason) == expected


def test_without_a_reference_nothing_is_judged() -> None:
    assert TASK.score("#### 7", replace(SEVEN, reference=None), "eos") == Score("unscored", "7")


def test_the_shipped_problems_are_those_training_leaves_out(tmp_path: Path) -> None:
    assert write_long(tmp_path / "again.jsonl") == ARITHMETIC_PROBLEM_COUNT >= 500
    assert (tmp_path / "again.jsonl").read_bytes() == ARITHMETIC_PROBLEMS.read_bytes()
    rows = [json.loads(line) for line in ARITHMETIC_PROBLEMS.read_text().splitlines()]
    assert list(rows[0]) == ["id", "question", "prompt", "steps", "answer"]
    assert [row["question"] for row in rows] == [p.question for p in generators.held_out_long(ARITHMETIC_PROBLEM_COUNT)]
    assert len({row["question"] for row in rows}) == len({row["id"] for row in rows}) == ARITHMETIC_PROBLEM_COUNT


def test_every_reference_solution_is_scored_correct_and_every_other_answer_wrong() -> None:
    examples = TASK.examples(TASK.size)
    problems = generators.held_out_long(ARITHMETIC_PROBLEM_COUNT)
    for example, problem in zip(examples, problems, strict=True):
        text = problem.solution(random.Random(example.id))
        assert TASK.score(text, example, "eos") == Score("correct", example.reference)
        assert TASK.score(f"#### {problem.answer + 1}", example, "eos").outcome == "wrong"


def test_a_limit_takes_the_first_prompts() -> None:
    assert TASK.examples(3) == TASK.examples(5)[:3]
    for limit in (0, -1, TASK.size + 1):
        with pytest.raises(OutOfRange, match=f"from 1 to {TASK.size}"):
            TASK.examples(limit)


def test_an_unknown_task_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownName):
        get_task("algebra")


class Repeating(Task):
    """Six prompts, of which two ask what another one did, with another reference too."""

    name, title = "repeating", "Repeating"

    def all_examples(self) -> tuple[Example, ...]:
        return tuple(Example(f"{i}", prompt, f"{i}") for i, prompt in enumerate("abacbd"))

    def score_answer(self, text: str, example: Example, stop_reason: str) -> Score:
        return Score("unscored", None)


def test_a_prompt_that_repeats_another_counts_once_and_the_others_keep_their_positions() -> None:
    task = Repeating()
    assert (task.size, task.repeats) == (4, {2, 4})
    assert [example.prompt for example in task.examples(4)] == ["a", "b", "c", "d"]
    assert list(task.examples_of(RunConfig(limit=2, first=1))) == [1, 3]
    shuffled = [task.positions(RunConfig(limit=4, shuffled=True, seed=seed)) for seed in range(5)]
    assert all(sorted(order) == [0, 1, 3, 5] for order in shuffled)
    assert len({tuple(order) for order in shuffled}) > 1
    with pytest.raises(OutOfRange):
        task.examples(5)
    assert TASK.repeats == frozenset()


WITHHELD = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def as_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_speed_bench(folder: Path, *turns: str) -> None:
    file = folder / "speed" / "qualitative" / "test.parquet"
    file.parent.mkdir(parents=True)
    kinds = ("coding", "low_entropy")
    rows = [
        {"question_id": f"{i:032x}", "category": kinds[i % 2], "turns": [turn, "And then?"], "multiturn": True}
        for i, turn in enumerate(turns)
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)


def test_speed_bench_is_read_as_nvidia_s_program_writes_it(data_folder: Path) -> None:
    write_speed_bench(data_folder, "Sort a list.", "Sum it up.", "Sort a tree.")
    task = get_task("speed-bench")
    assert task.available
    assert [example.prompt for example in task.all_examples()] == ["Sort a list.", "Sum it up.", "Sort a tree."]
    assert [example.category for example in task.all_examples()] == ["coding", "low entropy", "coding"]
    assert not task.scored
    turns = get_task("speed-bench-turns").all_examples()
    assert [example.prompt for example in turns[:3]] == ["Sort a list.", "And then?", "Sum it up."]
    assert [example.category for example in turns[1::2]] == ["coding", "low entropy", "coding"]
    assert len({example.id for example in turns}) == 6


def test_speed_bench_without_its_texts_is_refused(data_folder: Path) -> None:
    """As it lies at the hub: a placeholder would be asked in place of each question that is missing."""
    write_speed_bench(data_folder, "Sort a list.", f"{WITHHELD}\n\n{{question}}")
    with pytest.raises(UnfitTask, match="texts of 1 of 2 prompts"):
        get_task("speed-bench").all_examples()


@pytest.mark.parametrize("damage", [b"PAR1", b"no parquet at all", b""])
def test_a_damaged_table_is_told(data_folder: Path, damage: bytes) -> None:
    write_speed_bench(data_folder, "Sort a list.")
    (data_folder / "speed" / "qualitative" / "test.parquet").write_bytes(damage)
    with pytest.raises(UnfitTask, match="cannot be read"):
        get_task("speed-bench").all_examples()


def test_both_examinations_are_read_whatever_their_fields_are_called(data_folder: Path) -> None:
    first = [{"ID": "2024-I-1", "Problem": " Find x. ", "Solution": "…", "Answer": 25}]
    second = [{"question": "Find y.", "answer": "033"}]
    write(data_folder / "aime" / "aime2024.jsonl", as_lines(first))
    write(data_folder / "aime" / "aime2025-I.jsonl", as_lines(second))
    assert not get_task("aime-2025").has_files
    write(data_folder / "aime" / "aime2025-II.jsonl", as_lines(second))
    (one,), two = get_task("aime-2024").all_examples(), get_task("aime-2025").all_examples()
    assert (one.reference, [example.reference for example in two]) == ("25", ["33", "33"])
    assert one.prompt.startswith("Find x.\n\nSolve the problem step by step.")
    assert get_task("aime-2025").size == 1  # the same problem twice counts once
    score = get_task("aime-2024").score(r"So $x = 20 + 5$. The answer is $\boxed{025}$.", one, "eos")
    assert (score.outcome, score.answer) == ("correct", "25")


def gpqa_row(question: str, domain: str) -> dict[str, str]:
    wrong = {f"Incorrect Answer {i}": f" wrong {i}\n" for i in (1, 2, 3)}
    row = {"Record ID": f"rec{question}", "Question": f"{question}\n", "Correct Answer": " right ", "Extra": "x"}
    return row | wrong | {"High-level domain": domain}


def test_gpqa_is_read_as_the_hub_has_it(data_folder: Path) -> None:
    task = Gpqa()
    (split,) = task.hub
    rows = [gpqa_row(f"Question {i}, or\nwhat?", domain) for i, domain in enumerate(("Physics", "Biology", "Physics"))]
    write(data_folder / split.file, split.text(rows))
    examples = task.all_examples()
    assert [example.category for example in examples] == ["Physics", "Biology", "Physics"]
    for example in examples:
        lines = example.prompt.splitlines()
        assert f"{example.reference}. right" in lines
        assert sum(line.endswith("right") for line in lines) == 1
        text = f"It is not A. Let me see.\nAnswer: {example.reference}"
        assert task.score(text, example, "eos").outcome == "correct"


def test_the_categories_of_spec_bench_alternate(data_folder: Path) -> None:
    kinds = ("writing", "translation", "summarization", "qa", "math_reasoning", "rag")
    rows = [{"question_id": i, "category": kinds[i // 2], "turns": [f"{kinds[i // 2]} {i}", "more"]} for i in range(12)]
    write(data_folder / "specbench" / "question.jsonl", as_lines(rows))
    examples = get_task("spec-bench").all_examples()
    assert len({example.category for example in examples[:6]}) == 6
    assert len({example.prompt for example in examples}) == 12
    assert [example.category for example in get_task("spec-bench-qa").all_examples()] == ["", ""]
    turns = get_task("spec-bench-turns").all_examples()
    assert [example for example in turns if not example.turn] == list(examples)
    for first, second in zip(turns[::2], turns[1::2], strict=True):
        assert (second.prompt, second.turn, second.category) == ("more", 1, first.category)
    assert [example.prompt for example in get_task("spec-bench-mt-turns").all_examples()] == [
        "writing 0", "more", "writing 1", "more",
    ]  # fmt: skip


def counts(outcome: str, accepted: int) -> PromptCounts:
    return PromptCounts(outcome, "eos", 20, 5, 10, accepted, 0, 1.0, 2.0, 0.1)


def test_figures_by_category_are_those_of_its_prompts_alone() -> None:
    prompts = {i: counts("correct" if i % 2 else "wrong", 9 if i % 3 else i % 5) for i in range(12)}
    kinds = {i: "copied" if i % 3 else "invented" for i in range(11)}  # one prompt has none
    found = by_category(prompts, kinds)
    assert list(found) == ["invented", "copied"]
    assert (found["copied"]["n"], found["copied"]["acceptance_rate"]) == (7, 0.9)
    assert found["invented"]["acceptance_rate"] == pytest.approx((0 + 3 + 1 + 4) / 40)
    html = categories_html(found)
    assert html.count("<tr") == 3
    assert "90" in html
    assert by_category(prompts, dict.fromkeys(prompts, "one")) == {}
    assert categories_html({}) == ""


def test_only_tasks_of_several_kinds_have_categories() -> None:
    tasks: list[Task] = [TASKS["arithmetic"], TASKS["everyday"], TASKS["short-problems"]]
    assert {example.category for task in tasks for example in task.all_examples()} == {""}


KINDS = ["question", "explanation", "summary", "rewriting", "list", "code", "dialogue", "translation"]
ROWS = [json.loads(line) for line in EVERYDAY.read_text(encoding="utf-8").splitlines()]


def test_the_kinds_take_turns_so_that_the_first_prompts_are_a_mix() -> None:
    assert [row["kind"] for row in ROWS] == KINDS * 10
    assert [row["id"] for row in ROWS] == [f"{kind}-{turn:02d}" for turn in range(10) for kind in KINDS]
    assert Counter(row["prompt"] for row in ROWS).most_common(1)[0][1] == 1
    assert all(20 < len(row["prompt"]) < 1000 and row["prompt"].strip() == row["prompt"] for row in ROWS)


def test_the_task_asks_them_as_they_are_and_scores_none() -> None:
    task = get_task("everyday")
    assert task.available  # without any file of the data folder
    assert [(e.id, e.prompt, e.reference) for e in task.all_examples()] == [
        (row["id"], row["prompt"], None) for row in ROWS
    ]
    for stop_reason in ("eos", "length", "context"):
        assert task.score("Ice is lighter.", task.examples(1)[0], stop_reason) == Score("unscored", None)
