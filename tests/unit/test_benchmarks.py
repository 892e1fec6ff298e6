"""Benchmarks of the field: their prompts from files in the authors' own form, and what is read from tricky outputs."""

from __future__ import annotations

import csv
import gzip
import json
import time
from pathlib import Path

import pytest

from fsd_core.errors import UnfitTask
from fsd_core.tasks import TASKS, Example, Score, choices, get_task
from fsd_core.tasks.choices import chosen_letter
from fsd_core.tasks.readings import canonical, final_number
from tests.tools.sizes import some

ADD = {
    "task_id": "HumanEval/0", "entry_point": "add", "canonical_solution": "    return int(a + b)\n",
    "prompt": 'from math import floor\n\n\ndef add(a: int, b: int) -> int:\n    """ Their sum. """\n',
    "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
}  # fmt: skip
WITH_CATEGORIES = ("aime-2024", "aime-2025", "gpqa-diamond", "speed-bench", "speed-bench-turns")
"""whose files test_tasks.py writes; test_livecodebench.py writes those of LiveCodeBench"""
SQUARE = {
    "text": "Write a function to square.", "code": "def sq(x): return x * x", "test_setup_code": "import math",
    "test_list": ["assert sq(3) == 9", "assert sq(2) == math.pow(2, 2)"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def data(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A few records of every file, and nothing remembered of others."""
    monkeypatch.setattr(choices, "SUBJECTS", 2)
    write_lines(
        data_folder / "gsm8k" / "train.jsonl",
        [{"question": f"Q{i}?", "answer": f"<<1+{i}=9>>9\n#### 9"} for i in range(6)],
    )
    write_lines(data_folder / "gsm8k" / "test.jsonl", [{"question": "How many?", "answer": "So 1,200.\n#### 1,200"}])
    problem = [{"instruction": " 3 and 4.5? ", "input": "", "output": "7.5", "answer": "7.50"}]
    for name in ("AddSub", "SingleEq", "MultiArith", "SVAMP"):
        (data_folder / "math_word" / name).mkdir(parents=True)
        (data_folder / "math_word" / name / "test.json").write_text(json.dumps(problem))
    where = {"stem": "Where?", "choices": [{"label": x, "text": f"in {x}"} for x in "ABCDE"]}
    for split in ("train", "dev"):
        asked = [{"id": f"{split}{i}", "answerKey": "B", "question": where} for i in range(4)]
        write_lines(data_folder / "csqa" / f"{split}_rand_split.jsonl", asked)
    for subject, count in (("abstract_algebra", 1), ("virology", 3)):
        for split, number in (("dev", 5), ("test", count)):
            file = data_folder / "mmlu" / f"{subject}_{split}.csv"
            file.parent.mkdir(exist_ok=True)
            with file.open("w", newline="") as stream:
                csv.writer(stream).writerows(
                    [f"{subject} {split} {i}, or?", "a", "b, b", "c", "d", "C"] for i in range(number)
                )
    (data_folder / "truthfulqa").mkdir()
    with (data_folder / "truthfulqa" / "TruthfulQA.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(
            [
                ["Type", "Category", "Question", "Best Answer", "Correct Answers", "Incorrect Answers", "Source"],
                ["A", "M", "What if?", "Nothing", "Nothing; No", "You grow; You get sick", "url"],
            ]
        )
    (data_folder / "humaneval").mkdir()
    with gzip.open(data_folder / "humaneval" / "HumanEval.jsonl.gz", "wt") as stream:
        stream.write(json.dumps(ADD) + "\n")
    write_lines(data_folder / "mbpp" / "mbpp.jsonl", [SQUARE | {"task_id": i} for i in (10, 11, 510, 511)])
    write_lines(data_folder / "mtbench" / "mt_bench" / "question.jsonl", [{"question_id": 81, "turns": ["One", "Two"]}])
    kinds = ("writing", "coding", "translation", "summarization", "qa", "math_reasoning", "rag")
    rows = [{"question_id": i, "category": kind, "turns": [kind]} for i, kind in enumerate(kinds)]
    write_lines(data_folder / "specbench" / "question.jsonl", rows)
    return data_folder


def write_lines(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("So 3 + 4 = 7.\n#### 7", "7"),
        ("#### 7\n#### 8", "7"),  # the first one: what follows is repetition
        ("#### $1,234.50 dollars", "1234.5"),
        ("#### -3", "-3"),
        ("####7", "7"),
        ("The answer is 12. That is 3 dozen less 24.", "12"),
        ("The answer is 5. No: the answer is **6**", "6"),
        ("Answer: $8", "8"),
        (r"so \boxed{42} apples of 50", "42"),
        ("he has 3, then 4 and in the end 5 apples.", "5"),
        ("5.0", "5"),
        ("It is 1,000,000.", "1000000"),
        ("there were 20.", "20"),
        ("7 apples\n\nQuestion: what is 9?", "7"),
        ("#### seven", "7"),
        ("none", None),
        ("", None),
    ],
)
def test_the_number_of_a_solution(text: str, number: str | None) -> None:
    assert final_number(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### .5", "0.5"),
        ("#### −5", "-5"),  # U+2212
        ("#### - 5", "-5"),
        ("#### - $5", "-5"),
        ("The answer is:\n- 5 apples", "5"),  # an item of a list
        ("It takes 5-10 minutes.", "10"),
        ("It takes 5–10 minutes.", "10"),
        ("It was -10.", "-10"),
        ("#### 1/2", "0.5"),
        ("#### 1 1/2", "1.5"),
        ("1½", "1.5"),
        ("#### 10/2 = 5", "5"),
        ("on 12/25/2020", "2020"),
        (r"\boxed{1{,}200}", "1200"),
        (r"\boxed{\text{\$18 dollars}} of 20", "18"),
        (r"\boxed{1\frac{1}{2}}", "1.5"),
        (r"The final answer is: $\boxed{18}$, not 20", "18"),
        ("#### 1. Add the 3\n#### 2. Take 2\n#### 18\nor 20", "18"),
        ("#### 1. Add the 3\n#### 2. Take 2\nThe answer is 18, not 20.", "18"),
        ("#### 1. Add the 3\n#### 2. Take 2 from 20: 18", "18"),
        ("#### 18. That is all but 2", "18"),
        ("#### **18** of 20", "18"),
        ("**Answer:** 18 of 20", "18"),
        ("The answer is 3 + 4 = 7.", "7"),
        ("the parts are 1,2,3", "3"),
        ("#### " + "9" * 99, None),
    ],
)
def test_a_number_in_an_unusual_form(text: str, number: str | None) -> None:
    assert final_number(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("He has 5 apples and then 18", None),
        ("#### 1", None),  # of 18
        ("The answer is 18.", None),  # of 18.5
        (r"\boxed{18", None),
        ("#### 3 + 4", None),
        ("#### 18\n", "18"),
        ("#### 18 apples", "18"),
        ("#### 18\n#### 1", "18"),
        ("The answer is 18.\nThe answer is 1", "18"),
        ("He has 18.\n\nQuestion: How man", "18"),  # it had ended
    ],
)
def test_a_text_that_was_cut_off_has_an_answer_that_is_marked_before_its_end(text: str, number: str | None) -> None:
    assert final_number(text, cut=True) == number
    example = Example("x", "", "18")
    outcome = "truncated" if number is None else "correct"
    assert get_task("gsm8k").score(text, example, "length") == Score(outcome, number)


@pytest.mark.parametrize(
    "piece",
    some(
        [
            "#### ",
            "\n",
            "1,",
            "111,",
            "1/",
            "answer is ",
            "#### 1+1=",
            "so ",
            r"\boxed{",
            "1 1/",
            " ",
            "1,1",
            "28 = 4 × ",
            "(28 ",
            "five hundred ",
            "la respuesta de ",
            "答案",
            "B\n",
            "A, ",
            "=> ",
            "<answer>",
        ],
        "111,",
        "1,1",
        "answer is ",
        "la respuesta de ",
    ),
)
def test_hostile_texts_are_read_in_linear_time(piece: str) -> None:
    def seconds(size: int) -> float:
        text, begun = piece * (size // len(piece)), time.process_time()
        final_number(text)
        chosen_letter(text)
        return time.process_time() - begun

    assert seconds(400_000) < 40 * max(seconds(40_000), 0.02)  # in quadratic time 100 times as much


def test_numbers_have_one_form() -> None:
    assert [canonical(text) for text in ("1,200", "1200.00", "$1200", "-0", "0.50", "1e3x", "")] == [
        "1200", "1200", "1200", "0", "0.5", None, None,
    ]  # fmt: skip
    # As AddSub's file has thirds, and as a model writes them.
    assert [canonical(text) for text in ("1/3", "0.3333333333333333", "11/6", "1.8333333333333335")] == [
        "0.333333333333", "0.333333333333", "1.833333333333", "1.833333333333",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (" B", "B"),
        ("B. in B", "B"),
        ("(C) because A is wrong", "C"),
        ("**D**", "D"),
        ("The answer is E.", "E"),
        ("The correct answer is: (b)", "B"),
        ("I think option A fits, not option B.", "A"),
        ("Because of it, the best choice is C", "C"),
        ("The answer is a dog, so C.", "C"),
        ("I think it is B.", "B"),
        ("I, for one, choose C", "C"),
        ("A dog. The answer is C", "C"),
        ("Answer: A dog", None),
        ("Answer: A is right", "A"),
        ("The answer is A because a dog barks", "A"),
        ("A, because a dog barks", "A"),
        ("The answer is I.", "I"),
        ("b) in the bank", "B"),
        ("(b) in the bank", "B"),
        ("a) in the bank", "A"),
        ("b", "B"),
        (r"So it is \boxed{B}, not C", "B"),
        (r"$\boxed{\text{B}}$", "B"),
        ("$B$", "B"),
        (r"The answer is \(B\).", "B"),
        ("The right one would be B", "B"),
        ("A would be wrong, so is B; it must be C", "C"),
        ("Option A is wrong. The answer is C.", "C"),
        ("The answer is e.g. a dog", None),
        ("The answer is a", "A"),
        ("E.g. a dog", None),
        ("D'accord", None),
        ("Bees live in hives", None),
        ("Answer: none", None),
        ("in the bank\nQuestion: X\nA. y\nAnswer: A", None),
        ("", None),
    ],
)
def test_the_letter_of_an_answer(text: str, letter: str | None) -> None:
    assert chosen_letter(text) == letter


def test_what_may_be_an_article_is_no_letter_at_the_end_of_a_text_that_was_cut_off() -> None:
    assert chosen_letter("The answer is a", cut=True) is None
    assert chosen_letter("The answer is B", cut=True) == "B"
    assert chosen_letter(" A", cut=True) == "A"  # one token was asked for
    assert chosen_letter("The answer is a\n\nQuestion: W", cut=True) == "A"  # it had ended


@pytest.mark.parametrize("name", ["gsm8k", "addsub", "csqa", "mmlu", "truthfulqa"])
def test_right_wrong_and_truncated(name: str) -> None:
    task = get_task(name)
    (example, *_) = task.all_examples()
    assert example.reference is not None
    assert task.score(f" {example.reference}", example, "eos") == Score("correct", example.reference)
    wrong = "M" if example.reference.isalpha() else "17"
    assert task.score(f" {wrong}", example, "eos") == Score("wrong", wrong)
    assert task.score("I do not know.", example, "eos") == Score("wrong", None)
    assert task.score("Let us see", example, "length") == Score("truncated", None)


def test_gsm8k_shows_four_solutions_first() -> None:
    (example,) = get_task("gsm8k").all_examples()
    assert example.prompt.count("Question: ") == 5
    assert "<<" not in example.prompt
    assert example.prompt.endswith("Question: How many?\nAnswer:")
    assert example.reference == "1200"


def test_the_subjects_of_mmlu_take_turns() -> None:
    examples = get_task("mmlu").all_examples()
    assert [example.id for example in examples] == [
        "abstract_algebra-0000", "virology-0000", "virology-0001", "virology-0002",
    ]  # fmt: skip
    assert "questions (with answers) about abstract algebra." in examples[0].prompt
    assert examples[1].prompt.count("Answer: C") == 5
    assert "B. b, b\n" in examples[1].prompt


def test_a_part_of_mmlu_is_not_mmlu(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "mmlu" / "virology_dev.csv").unlink()
    assert not get_task("mmlu").available
    with pytest.raises(UnfitTask, match=r"has 1 of MMLU's 2 subjects.*FSD_DATA_DIR"):
        get_task("mmlu").examples(1)


def test_the_best_answer_of_truthfulqa_is_among_the_wrong_ones() -> None:
    (example,) = get_task("truthfulqa").all_examples()
    assert f"{example.reference}. Nothing\n" in example.prompt
    assert "You get sick" in example.prompt


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("```python\ndef add(a, b):\n    return a + b\n```", "correct"),
        ("Here:\n```\ndef add(a, b):\n    return floor(a + b)\n```\nIt adds.", "correct"),  # the head's import is there
        ("    return a + b\n\nprint(add(1, 2))", "correct"),  # a bare body, ended at the margin
        ("```python\n    return a + b\n```", "correct"),  # a body in a block
        ("```python\ndef add(a, b):\n    return a - b\n```", "wrong"),
        ("I cannot.", "wrong"),
        ("", "wrong"),
        ("```python\nraise SystemExit\n```", "wrong"),
    ],
)
def test_humaneval_runs_what_was_written(text: str, outcome: str) -> None:
    (example,) = get_task("humaneval").all_examples()
    assert get_task("humaneval").score(text, example, "eos").outcome == outcome


def test_a_program_that_was_cut_off_is_truncated() -> None:
    (example,) = get_task("humaneval").all_examples()
    assert get_task("humaneval").score("```python\ndef add(a, b):\n    ret", example, "length").outcome == "truncated"


def test_mbpp_is_its_test_split() -> None:
    task = get_task("mbpp")
    examples = task.all_examples()
    assert [example.id for example in examples] == ["11", "510"]
    assert "assert sq(3) == 9" in examples[0].prompt
    assert task.score("```python\ndef sq(x):\n    return x ** 2\n```", examples[0], "eos").outcome == "correct"
    assert task.score("def sq(x): return x * x", examples[0], "eos").outcome == "correct"
    assert task.score("def sq(x): return x", examples[0], "eos").outcome == "wrong"


def test_reference_programs_pass_their_tests() -> None:
    for name in ("humaneval", "mbpp"):
        example = get_task(name).all_examples()[0]
        assert example.reference is not None
        assert get_task(name).score(example.reference, example, "eos").outcome == "correct"


def test_prompts_without_an_answer_are_not_judged() -> None:
    assert [e.prompt for e in get_task("spec-bench-mt").all_examples()] == ["writing", "coding"]
    assert [e.prompt for e in get_task("spec-bench-math").all_examples()] == ["math_reasoning"]
    (example,) = get_task("mt-bench").all_examples()
    assert (example.prompt, example.reference) == ("One", None)
    assert get_task("mt-bench").score("text", example, "length") == Score("unscored", None)


def test_ids_and_names_are_unique() -> None:
    assert all(task.name == name for name, task in TASKS.items())
    for task in TASKS.values():
        if task.name in WITH_CATEGORIES or task.name.startswith("livecodebench"):
            continue
        assert task.available
        ids = [example.id for example in task.all_examples()]
        assert len(set(ids)) == len(ids) > 0


def test_a_file_that_is_missing_or_broken_is_told(data: Path) -> None:
    (data / "mbpp" / "mbpp.jsonl").unlink()
    assert not get_task("mbpp").available
    with pytest.raises(UnfitTask, match=r"mbpp/mbpp\.jsonl"):
        get_task("mbpp").examples(1)
    (data / "mtbench" / "mt_bench" / "question.jsonl").write_text('{"question_id": 81, "tur')
    with pytest.raises(UnfitTask, match="cannot be read"):
        get_task("mt-bench").examples(1)
