"""HumanEval and MBPP: what of a problem is the model's, and what is the benchmark's own."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from fsd_core.tasks import Score, get_task

DECODE = {
    "task_id": "HumanEval/0", "entry_point": "decode", "canonical_solution": "    return math.floor(x) - 1\n",
    "prompt": "import math\n\ndef encode(x):\n    return x + 1\n\n\ndef decode(x):\n    ''' Undoes encode. '''\n",
    "test": "def check(candidate):\n    for x in range(9):\n        assert candidate(encode(x)) == x\n",
}  # fmt: skip
TREE = {
    "text": "", "test_setup_code": "root = Node(1)\r\nroot.left = Node(2)",
    "code": "class Node:\n    def __init__(self, x): self.x, self.left = x, None\ndef total(n): return n.x + n.left.x",
    "test_list": ["assert total(root) == 3"],
}  # fmt: skip
SUM = {
    "text": "", "test_setup_code": "", "code": "def sum(a, b): return a * b", "test_list": ["assert sum(3, 4) == 12"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _files(data_folder: Path) -> None:
    (data_folder / "humaneval").mkdir()
    with gzip.open(data_folder / "humaneval" / "HumanEval.jsonl.gz", "wt") as stream:
        stream.write(json.dumps(DECODE) + "\n")
    (data_folder / "mbpp").mkdir()
    problems = [TREE | {"task_id": 11}, SUM | {"task_id": 12}]
    (data_folder / "mbpp" / "mbpp.jsonl").write_text("".join(json.dumps(row) + "\n" for row in problems))


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("def decode(x):\n    return x - 1", "correct"),
        ("def decode(x):\n    return next(y for y in range(99) if encode(y) == x)", "correct"),  # as the prompt has it
        ("import math\ndef encode(x):\n    return x + 1\ndef decode(x):\n    return math.ceil(x) - 1", "correct"),
        (
            "def encode(x):\n    return x\ndef decode(x):\n    return x",
            "wrong",
        ),  # the tests have an encode of their own
    ],
)
def test_helpers_of_the_prompt_are_there_and_the_tests_use_the_prompt_s_own(answer: str, outcome: str) -> None:
    (example,) = get_task("humaneval").all_examples()
    assert get_task("humaneval").score(f"```python\n{answer}\n```", example, "eos").outcome == outcome


WRITTEN = "def decode(x):\n    return math.floor(x) - 1\n"
HEAD = "import math\n\ndef encode(x):\n    return x + 1\n\n\n"


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + WRITTEN,  # the whole of it without a fence: imports and helpers do not end the program
        f"Here is the function:\n\n{HEAD}{WRITTEN}\nIt undoes encode.",
        "LESS = 1\n\n" + WRITTEN.replace("- 1", "- LESS") + "\nprint(decode(2))",
        f"Install it first:\n```bash\npip install decode\n```\n```python\n{WRITTEN}```",
        "```Python\r\n" + WRITTEN.replace("\n", "\r\n") + "```",
        f"```python3\n{WRITTEN}```",
        "```python\ndef decode_all(xs):\n    return [decode(x) for x in xs]\n```\n```python\n" + WRITTEN + "```",
        "    return math.floor(x) - 1\n\n\ndef decode(x):\n    return x",  # a body; what comes behind is invented
    ],
)
def test_the_function_is_found_where_it_stands(answer: str) -> None:
    (example,) = get_task("humaneval").all_examples()
    assert get_task("humaneval").score(answer, example, "eos") == Score("correct", "passed")


def test_a_block_that_was_cut_off_is_truncated_wherever_it_begins() -> None:
    (example,) = get_task("humaneval").all_examples()
    score = get_task("humaneval").score
    assert score("Here it is:\n```python\ndef decode(x):\n    ret", example, "length").outcome == "truncated"
    assert score("```python\ndef decode(x):\n    return x\n```\nIt gi", example, "length").outcome == "wrong"


def test_a_program_in_prose_is_found() -> None:
    task = get_task("mbpp")
    example = task.all_examples()[1]
    assert task.score(f"This is it:\n\n{SUM['code']}\n\nIt multiplies.", example, "eos").outcome == "correct"


def test_setup_code_uses_what_the_program_defines() -> None:
    task = get_task("mbpp")
    example = task.all_examples()[0]
    assert task.score(TREE["code"], example, "eos").outcome == "correct"
    assert (
        task.score("def total(n): return 3", example, "eos").answer == "failed: NameError: name 'Node' is not defined"
    )


def test_a_function_may_be_called_like_a_built_in() -> None:
    task = get_task("mbpp")
    example = task.all_examples()[1]
    assert task.score(SUM["code"], example, "eos").outcome == "correct"
    assert task.score("def product(a, b): return a * b", example, "eos").outcome == "wrong"
    forged = "class Yes:\n    def __eq__(self, other): return True\ndef sum(a, b): return Yes()"
    assert task.score(forged, example, "eos").outcome == "wrong"


def test_an_answer_that_no_interpreter_reads_is_wrong() -> None:
    task = get_task("mbpp")
    example = task.all_examples()[1]
    for text in ("\0", "\ud800", "\x1b[31m", "(" * 9999, "x = '" + "é" * 200_000 + "'"):
        score = task.score(text, example, "eos")
        assert score.outcome == "wrong"
        assert score.answer is not None
        assert score.answer.isprintable()
