"""HumanEval and MBPP: what of a problem is the model's, and what is the benchmark's own."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from fsd_core.benchmarks.tasks import get_task

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
