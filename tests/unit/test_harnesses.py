"""Programs are judged as the benchmark's own harness judges them, form by form: ``tests/forms/programs.jsonl``.

A form has an answer, the code that a person copies from it, and the harness. What the harness says of that code is
worked out here by its rules, in a plain interpreter: the code runs with an empty namespace and without a standard input
(HumanEval, MBPP); behind the authors' imports in a module of another name (LiveCodeBench); and, where it prints, with
all but its imports in one function, and without a guard that is last.
"""

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

from fsd_core.tasks import get_task
from fsd_core.tasks.livecodebench import _PRELUDE
from tests.tools.live_problems import ADD, LONGEST, row, write_live_file
from tests.tools.sizes import some

FORMS = [json.loads(line) for line in Path("tests/forms/programs.jsonl").read_text(encoding="utf-8").splitlines()]
IN_GATE = [
    form for form in FORMS if form["why"].endswith(("is not run", "copies it", "first, whatever the prompt has above"))
]
HEAD = 'from math import floor\n\n\ndef add(a: int, b: int) -> int:\n    """ Their sum. """\n'
TESTS = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"]
TASKS = {"humaneval": "humaneval", "mbpp": "mbpp", "stdin": "livecodebench-v6", "call": "livecodebench-v6"}


@pytest.fixture(autouse=True)
def data(data_folder: Path) -> None:
    """A problem for each harness: to add two numbers."""
    for folder in ("humaneval", "mbpp"):
        (data_folder / folder).mkdir()
    check = "def check(candidate):\n" + "".join(f"    {test.replace('add', 'candidate')}\n" for test in TESTS)
    human = {"task_id": "HumanEval/0", "entry_point": "add", "canonical_solution": "", "prompt": HEAD, "test": check}
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


def test_both_verdicts_occur_in_each_harness() -> None:
    recursion = sys.getrecursionlimit()
    verdicts = {
        (form["harness"], passes(form["harness"], form["code"])) for form in FORMS if "while True" not in form["code"]
    }
    sys.setrecursionlimit(recursion)
    assert verdicts == {(harness, verdict) for harness in TASKS for verdict in (True, False)}
