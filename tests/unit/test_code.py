"""Tasks whose answers are programs: what of a problem is the model's, and a verdict as the harness gives it."""

from __future__ import annotations

import ast
import contextlib
import gzip
import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fsd_core.tasks import Score, get_task
from fsd_plugins.code.livecodebench import _PRELUDE
from tests.tools.live_problems import ADD, LONGEST, row, write_live_file
from tests.tools.sizes import some

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


@pytest.fixture
def _files(data_folder: Path) -> None:
    (data_folder / "humaneval").mkdir()
    with gzip.open(data_folder / "humaneval" / "HumanEval.jsonl.gz", "wt") as stream:
        stream.write(json.dumps(DECODE) + "\n")
    (data_folder / "mbpp").mkdir()
    problems = [TREE | {"task_id": 11}, SUM | {"task_id": 12}]
    (data_folder / "mbpp" / "mbpp.jsonl").write_text("".join(json.dumps(row) + "\n" for row in problems))


@pytest.mark.usefixtures("_files")
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


@pytest.mark.usefixtures("_files")
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


@pytest.mark.usefixtures("_files")
def test_a_block_that_was_cut_off_is_truncated_wherever_it_begins() -> None:
    (example,) = get_task("humaneval").all_examples()
    score = get_task("humaneval").score
    assert score("Here it is:\n```python\ndef decode(x):\n    ret", example, "length").outcome == "truncated"
    assert score("```python\ndef decode(x):\n    return x\n```\nIt gi", example, "length").outcome == "wrong"


@pytest.mark.usefixtures("_files")
def test_a_program_in_prose_is_found() -> None:
    task = get_task("mbpp")
    example = task.all_examples()[1]
    assert task.score(f"This is it:\n\n{SUM['code']}\n\nIt multiplies.", example, "eos").outcome == "correct"


@pytest.mark.usefixtures("_files")
def test_setup_code_uses_what_the_program_defines() -> None:
    task = get_task("mbpp")
    example = task.all_examples()[0]
    assert task.score(TREE["code"], example, "eos").outcome == "correct"
    assert (
        task.score("def total(n): return 3", example, "eos").answer == "failed: NameError: name 'Node' is not defined"
    )


@pytest.mark.usefixtures("_files")
def test_a_function_may_be_called_like_a_built_in() -> None:
    task = get_task("mbpp")
    example = task.all_examples()[1]
    assert task.score(SUM["code"], example, "eos").outcome == "correct"
    assert task.score("def product(a, b): return a * b", example, "eos").outcome == "wrong"
    forged = "class Yes:\n    def __eq__(self, other): return True\ndef sum(a, b): return Yes()"
    assert task.score(forged, example, "eos").outcome == "wrong"


@pytest.mark.usefixtures("_files")
def test_an_answer_that_no_interpreter_reads_is_wrong() -> None:
    task = get_task("mbpp")
    example = task.all_examples()[1]
    for text in ("\0", "\ud800", "\x1b[31m", "(" * 9999, "x = '" + "é" * 200_000 + "'"):
        score = task.score(text, example, "eos")
        assert score.outcome == "wrong"
        assert score.answer is not None
        assert score.answer.isprintable()


FORMS = [json.loads(line) for line in Path("tests/forms/programs.jsonl").read_text(encoding="utf-8").splitlines()]
IN_GATE = [
    form for form in FORMS if form["why"].endswith(("is not run", "copies it", "first, whatever the prompt has above"))
]
HARNESS_HEAD = 'from math import floor\n\n\ndef add(a: int, b: int) -> int:\n    """ Their sum. """\n'
TESTS = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"]
TASKS = {"humaneval": "humaneval", "mbpp": "mbpp", "stdin": "livecodebench-v6", "call": "livecodebench-v6"}


@pytest.fixture
def data(data_folder: Path) -> None:
    """A problem for each harness: to add two numbers."""
    for folder in ("humaneval", "mbpp"):
        (data_folder / folder).mkdir()
    check = "def check(candidate):\n" + "".join(f"    {test.replace('add', 'candidate')}\n" for test in TESTS)
    human = {
        "task_id": "HumanEval/0",
        "entry_point": "add",
        "canonical_solution": "",
        "prompt": HARNESS_HEAD,
        "test": check,
    }
    with gzip.open(data_folder / "humaneval" / "HumanEval.jsonl.gz", "wt") as stream:
        stream.write(json.dumps(human) + "\n")
    mbpp = {"text": "Add.", "code": "def add(a, b): pass", "test_setup_code": "", "test_list": TESTS, "task_id": 11}
    (data_folder / "mbpp" / "mbpp.jsonl").write_text(json.dumps(mbpp) + "\n")
    starter = "class Solution:\n    def add(self, a: int, b: int) -> int:\n        "
    called = LONGEST | {"starter_code": starter, "metadata": '{"func_name": "add"}'}
    write_live_file(
        data_folder,
        "test6.jsonl",
        row(ADD, ((("1 2\n", "3\n"),), (("40 2\n", "42\n"),))),
        row(called, ((("1\n2", "3"),), (("40\n2", "42"),))),
    )


class NoInput(io.StringIO):
    def read(self, *_: Any) -> str:
        raise OSError

    readline = read


def passes(harness: str, code: str) -> bool:
    """What the harness says of code."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return {"stdin": by_printing, "call": by_calling}.get(harness, by_tests)(code)
        except BaseException as error:
            if isinstance(error, pytest.fail.Exception | KeyboardInterrupt):
                raise
            return False


def by_tests(code: str) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", NoInput())
        patch.setattr(sys, "argv", ["evaluate"])
        exec("\n".join([code, *TESTS]), {})
    return True


def by_calling(code: str) -> bool:
    module = ModuleType("tmp_sol")
    exec(f"{_PRELUDE}\n\n{code}", module.__dict__)
    solution = module.Solution() if "class Solution" in code else module
    return solution.add(1, 2) == 3 and solution.add(40, 2) == 42


def by_printing(code: str) -> bool:
    tree = ast.parse(code)
    last = tree.body[-1]
    if isinstance(last, ast.If) and ast.unparse(last.test) == "__name__ == '__main__'":
        tree.body[-1:] = last.body
    imports = [ast.unparse(part) for part in tree.body if isinstance(part, ast.Import | ast.ImportFrom)]
    others = [ast.unparse(part) for part in tree.body if not isinstance(part, ast.Import | ast.ImportFrom)]
    lines = "\n".join(others).splitlines()
    module = ModuleType("tmp_sol")
    written = "\n".join([_PRELUDE, *imports, "def wrapped_function():", *(f"    {line}" for line in lines)])
    exec(written, module.__dict__)
    for given, expected in (("1 2\n", "3"), ("40 2\n", "42")):
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
            patch.setattr(sys, "stdin", io.StringIO(given))
            module.__dict__["stdin"] = sys.stdin
            with contextlib.suppress(SystemExit):
                module.wrapped_function()
        if printed.getvalue().strip() != expected:
            return False
    return True


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    "form", some(FORMS, *IN_GATE[::3]), ids=[f"{i}-{form['why'][:50]}" for i, form in enumerate(FORMS)]
)
def test_a_program_is_judged_as_by_the_benchmark_s_own_harness(form: dict[str, str]) -> None:
    task = get_task(TASKS[form["harness"]])
    example = task.all_examples()[form["harness"] == "call"]
    recursion = sys.getrecursionlimit()
    try:
        expected = "correct" if passes(form["harness"], form["code"]) else "wrong"
    finally:
        sys.setrecursionlimit(recursion)
    score = task.score(form["text"], example, "eos")
    assert score.outcome == expected, f"{form['why']}: {score.answer}"


@pytest.mark.usefixtures("data")
def test_both_verdicts_occur_in_each_harness() -> None:
    recursion = sys.getrecursionlimit()
    verdicts = {
        (form["harness"], passes(form["harness"], form["code"])) for form in FORMS if "while True" not in form["code"]
    }
    sys.setrecursionlimit(recursion)
    assert verdicts == {(harness, verdict) for harness in TASKS for verdict in (True, False)}
