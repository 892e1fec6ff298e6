"""LiveCodeBench: its files, its windows of time, its prompt and its verdicts, with real programs in the sandbox."""

from __future__ import annotations

import os
import pickle
import pickletools
import resource
from pathlib import Path
from typing import Any

import pytest

from fsd_core.config import RunConfig
from fsd_core.errors import FsdError, Stale, UnfitTask
from fsd_core.tasks import TASKS, Example, get_task
from fsd_plugins.code import livecodebench, sandbox
from fsd_plugins.code.livecodebench import read_tests, same_output
from tests.tools.live_problems import ADD, ADD_TESTS, LONGEST, LONGEST_TESTS, cases_of, packed, row, write_live_file
from tests.tools.sizes import some

SOLVED = "class Solution:\n    def longest(self, words: List[str], most: int) -> List[int]:\n"
SOLVED += "        if not words: return ()\n        i = max(range(len(words)), key=lambda i: len(words[i]))\n"
SOLVED += "        return i, min(most, len(words[i]))"


@pytest.fixture(autouse=True)
def data(data_folder: Path) -> Path:
    """The last release: a program that prints, and a method."""
    write_live_file(data_folder, "test6.jsonl", row(ADD, ADD_TESTS), row(LONGEST, LONGEST_TESTS))
    return data_folder


def examples() -> tuple[Example, ...]:
    return get_task("livecodebench-v6").all_examples()


def outcome(code: str, which: int = 0, stop_reason: str = "eos") -> tuple[str, str]:
    score = get_task("livecodebench-v6").score(f"Here:\n```python\n{code}\n```\n", examples()[which], stop_reason)
    return score.outcome, score.answer or ""


def test_a_problem_is_asked_as_its_authors_ask() -> None:
    printing, method = examples()
    assert (printing.id, printing.category, method.category) == ("abc001_a", "easy", "hard")
    assert "### Question:\nPrint the sum of two numbers.\n\n### Format: Read the inputs from stdin" in printing.prompt
    assert "```python\n# YOUR CODE HERE\n```\n\n### Answer: (use the provided format with backticks)" in printing.prompt
    assert "### Format: You will use the following starter code" in method.prompt
    assert f"```python\n{LONGEST['starter_code']}\n```" in method.prompt
    assert "40 2" not in printing.prompt


@pytest.mark.parametrize(
    "code",
    [
        "print(sum(map(float, input().split())))",  # 3.0 is 3
        "import sys\nfor line in sys.stdin: print(' ', *[sum(Decimal(x) for x in line.split())], '  ')\n\n"
        .replace("Decimal", "float"),
        "def main():\n    a, b = map(float, stdin.readline().split())\n    print(f'{a + b:g}')\n"
        "if __name__ == '__main__':\n    main()",  # sys's own names are there
        "import sys, os\nwords = sys.stdin.buffer.read().split()\nos.write(1, str(sum(map(float, words))).encode())",
        "import sys, threading\nthreading.stack_size(1 << 27)\ndef run(): print(sum(map(float, input().split())))\n"
        "thread = threading.Thread(target=run)\nthread.start()\nthread.join()",
        "print(sum(map(float, open(0).read().split())))\nexit()",
        "import atexit, sys\natexit.register(lambda: print(x))\nx = sum(map(float, input().split()))\nsys.exit(3)",
        "def down(n): return 0 if n == 0 else down(n - 1)\ndown(20000)\nprint(sum(map(float, input().split())))",
    ],
)  # fmt: skip
def test_a_program_that_prints_what_is_right_is_correct(code: str) -> None:
    assert outcome(code) == ("correct", "passed")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("print(3)", "failed: it printed something else (test 2 of 4)"),
        ("print({'1 2': 3, '2 5': 7}[input()])", "failed: KeyError: '40 2' (test 3 of 4)"),
        ("print(sum(map(float, input().split()))); print(0)", "failed: it printed something else (test 1 of 4)"),
        ("print(3", "failed: SyntaxError: '(' was never closed (program, line"),
        ("print(sum(map(float, input().split()))); raise ValueError", "failed: ValueError: (test 1 of 4)"),
        ("import numpy", "failed: ModuleNotFoundError: No module named 'numpy' (test 1 of 4)"),
        ("", "failed: no block of code"),
    ],
)
def test_another_output_is_wrong(code: str, why: str) -> None:
    result, answer = outcome(code)
    assert result == "wrong"
    assert answer.startswith(why)


def test_a_method_is_called_with_the_values_of_each_line() -> None:
    assert outcome(SOLVED, 1) == ("correct", "passed")  # a tuple is as good as a list
    assert outcome(SOLVED.replace("min(most, len(words[i]))", "most"), 1)[0] == "wrong"
    assert outcome(SOLVED.replace("longest", "shortest"), 1)[1].startswith("failed: AttributeError")
    bare = SOLVED.replace("class Solution:\n", "").replace("self, ", "").replace("    def", "def")
    assert outcome(bare, 1) == ("correct", "passed")
    assert outcome(SOLVED.replace("return i,", "return [i],"), 1)[0] == "wrong"


@pytest.mark.wide
def test_large_arguments_reach_a_method(data: Path) -> None:
    pairs = [[i, i] for i in range(200_000)]
    tests = ((("[[1, 2]]\n9", "3"),), ((f"{pairs}\n9", str(sum(map(sum, pairs)))),))
    write_live_file(data, "test5.jsonl", row(LONGEST, tests))
    code = "class Solution:\n    def longest(self, x, y): return sum(map(sum, x))"
    task = get_task("livecodebench-v5")
    assert task.score(f"```\n{code}\n```", task.all_examples()[0], "eos").answer == "passed"


def test_the_last_block_is_the_program() -> None:
    right = "print(sum(map(float, input().split())))"
    assert outcome(f"print(1)\n```\nOr better:\n```py\n{right}")[0] == "correct"
    assert outcome(f"{right}\n```\nNot:\n```py\nprint(1)")[0] == "wrong"
    task = get_task("livecodebench-v6")
    assert task.score(right, examples()[0], "eos").outcome == "wrong"  # the authors read no code without a block
    assert task.score(f"```python\n{right}", examples()[0], "length").outcome == "truncated"


HOSTILE = {
    "prints without end": ("while True: print('x' * 1000)", "failed: it printed more than 33,554,432 bytes"),
    "reads for ever": ("import sys\nwhile True: sys.stdin.read()", "stopped after 6 s"),
    "claims to have passed": ("import os\nfor i in range(3, 40):\n    try: os.write(i, b'passed')\n"
                              "    except OSError: pass\nos._exit(0)", "failed: "),
    "ends before it is judged": ("import os\nos._exit(7)", "failed: it ended itself"),
    "closes what it has and goes on": ("import os\nos.closerange(0, 50)\nwhile True: pass", "stopped after 6 s"),
    "reads a file": ("print(open('/etc/passwd').read())", "failed: PermissionError"),
    "looks for the answers": ("import os\nprint(os.listdir('/proc'))", "failed: PermissionError"),
    "starts a process": ("import os\nos.fork()", "failed: PermissionError"),
    "takes all memory": ("x = []\nwhile True: x.append(bytearray(1 << 24))", "failed: MemoryError"),
    "raises a huge text": ("raise ValueError('x' * 10 ** 7)", "failed: ValueError: xxx"),
    "raises what cannot be told": ("class E(BaseException):\n    def __str__(self): return 1 / 0\nraise E",
                                   "failed: an exception without a text"),
    "prints no text": ("import os\nos.write(1, bytes(range(128, 256)))", "failed: it printed something else"),
    "writes over its input": ("import os\nos.write(0, b'1 1')", "failed: OSError"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", some(HOSTILE, "prints without end", "closes what it has and goes on", "reads a file", "takes all memory")
)
def test_a_hostile_program_gets_a_verdict_and_no_more(name: str) -> None:
    code, why = HOSTILE[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    printed = sandbox.printed_by(code, "1 2\n", seconds=6 if "6 s" not in why else 1)
    verdict = printed.failure or "failed: it printed something else"
    assert verdict.startswith(why.replace("6 s", "1 s"))
    assert len(verdict) <= 200
    assert not printed.failure or not printed.text
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes
    assert os.listdir("/proc/self/fd")  # still here


def test_a_program_that_waits_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsd_plugins.code.sandbox.judge_process.SPARE", 0.1)
    assert sandbox.printed_by("import time\ntime.sleep(999)", "", seconds=0.1).failure == "stopped after 0.1 s"


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("1 2\n", "1 2", True), ("\n 1 2 \n\n", "1 2", True), ("1\r\n2\r\n", "1\n2", True), ("1.0 2e0", "1 2", True),
        ("0.30000000000000004", "0.3", False), ("50000000000000001", "50000000000000000", False),
        ("1\n\n2", "1\n2", False),
        ("1  2", "1 2", True), ("a  b", "a b", False), ("YES", "Yes", False), ("", "", True), ("1", "", False),
        ("nan", "nan", True), ("nan 1", "nan 1.0", False), ("snan", "1", False), ("inf", "Infinity", True),
        ("1e999999999999", "1", False), ("1", "one", False),
    ],
)  # fmt: skip
def test_outputs_are_compared_by_the_authors_rule(printed: str, expected: str, same: bool) -> None:
    assert same_output(printed, expected) is same


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch run-by-a-pickle",))


TESTS = cases_of("stdin", (("1", "2"),))
BAD_TESTS = {
    "a pickle that runs code": (packed(pickle.dumps(_Runs())), r"their pickle does more than hold one text \(\w+\)"),
    "a list": (packed(pickle.dumps([TESTS])), "does more than hold one text"),
    "two texts": (packed(pickle.dumps(TESTS)[:-1] + pickle.dumps(TESTS)[2:]), "does more than hold one text"),
    "a second pickle": (packed(pickle.dumps(TESTS) * 2), "or something behind its end"),
    "bytes": (packed(pickle.dumps(b"x")), "does more than hold one text"),
    "no pickle": (packed(b"x"), "they hold no pickle that can be read"),
    "a pickle that lies about its size": (packed(b"\x80\x04\x8d" + b"\xff" * 8 + b"x."), "no pickle that can be read"),
    "other JSON within": (packed(pickle.dumps("{}")), "they are no list of tests"),
    "no JSON within": (packed(pickle.dumps("{")), "the text within them is no JSON"),
    "deep JSON": ("[" * 200_000, "neither JSON|no list of tests"),
    "not compressed": ("eHh4", "neither JSON nor compressed"),
    "neither": ("?", "neither JSON nor compressed"),
    "half of it": (packed(os.urandom(999))[:800], "they end too soon"),
    "numbers": ("[1]", "no list of tests"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_TESTS)
def test_hidden_tests_of_another_form_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, why = BAD_TESTS[name]
    with pytest.raises(UnfitTask, match=rf"hidden tests of the problem 'p' of LiveCodeBench .*({why})"):
        read_tests(text, "p")
    assert not Path("run-by-a-pickle").exists()


@pytest.mark.wide
def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(livecodebench, "LARGEST_TESTS", 1 << 20)
    bomb = packed(bytes(1 << 28))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UnfitTask, match="more than 1,048,576 bytes"):
        read_tests(bomb, "p")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("size", [0, 300, 70_000])
def test_texts_are_read_as_pickle_reads_them(protocol: int, size: int) -> None:
    text = cases_of("stdin", (("é\ud800世" * size, "2"),))
    pickled = pickle.dumps(text, protocol)
    assert read_tests(packed(pickled), "p") == read_tests(text, "p")
    assert read_tests(packed(pickletools.optimize(pickled)), "p") == read_tests(text, "p")


def test_releases_and_days_are_chosen_by_name(data: Path) -> None:
    late = {**ADD, "question_id": "abc002_a", "contest_date": "2024-12-07T00:00:00", "question_content": "Print 1."}
    write_live_file(data, "test5.jsonl", row(ADD, ADD_TESTS), row(late, ADD_TESTS))
    write_live_file(data, "test6.jsonl", row(LONGEST, LONGEST_TESTS))

    def ids(name: str) -> list[str]:
        assert get_task(name).name == name
        return [example.id for example in get_task(name).all_examples()]

    assert ids("livecodebench-v5-v6") == ["abc001_a", "abc002_a", "3001"]
    assert ids("livecodebench-v5-v6:2024-12-01..2025-01-12") == ["abc002_a", "3001"]
    assert ids("livecodebench-v5-v6:2025-01-12..") == ["3001"]
    assert ids("livecodebench-v5:..2024-10-05") == ["abc001_a"]
    assert get_task("livecodebench-v5:..2024-10-05") is get_task("livecodebench-v5:..2024-10-05")
    assert get_task("livecodebench-v5-v6:2025-01-12..").title == "LiveCodeBench v5-v6, 2025-01-12.."
    assert [name for name in TASKS if name.startswith("live")] == [
        *(f"livecodebench-v{number}" for number in range(1, 7)), "livecodebench-v1-v6",
    ]  # fmt: skip
    assert get_task("livecodebench-v1-v6").published == 1055
    assert not get_task("livecodebench-v4").available
    task = get_task("livecodebench-v5-v6:2024-12-01..")
    task.check_limit(2)
    assert list(task.examples_of(RunConfig(limit=1, first=1))) == [1]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("livecodebench-v7", "There is no task"),
        ("livecodebench-v6:", "There is no task"),
        ("livecodebench-v6:2025-02-30..", "names no day"),
        ("livecodebench-v6-v5", "ends before it begins"),
        ("livecodebench-v6-v6", "ends before it begins"),
        ("livecodebench-v6:2025-02-02..2025-02-01", "ends before it begins"),
    ],
)
def test_names_of_no_release_and_no_day_are_refused(name: str, why: str) -> None:
    with pytest.raises(FsdError, match=why):
        get_task(name)


def test_days_without_a_contest_are_told() -> None:
    with pytest.raises(UnfitTask, match=r"livecodebench-v6:2030-01-01\.\."):
        get_task("livecodebench-v6:2030-01-01..").check_limit(1)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([row(ADD, ADD_TESTS, contest_date=3)], "is not as LiveCodeBench's authors publish it"),
        ([row(ADD, ADD_TESTS, contest_date="soon")], "is not as LiveCodeBench's authors publish it"),
        ([row(ADD, ADD_TESTS, question_content=None)], "is not as LiveCodeBench's authors publish it"),
        ([{"question_id": "x"}], "is not as LiveCodeBench's authors publish it"),
        ([], "is empty"),
        ([["x"]], "cannot be read"),
    ],
)
def test_files_of_another_form_are_refused(data: Path, rows: list[Any], why: str) -> None:
    write_live_file(data, "test4.jsonl", *rows)
    with pytest.raises(UnfitTask, match=why):
        get_task("livecodebench-v4").all_examples()


def test_a_missing_file_names_the_command(data: Path) -> None:
    with pytest.raises(UnfitTask, match=r"livecodebench/test3\.jsonl"):
        get_task("livecodebench-v3").all_examples()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"private_test_cases": "[]", "public_test_cases": "[]"}, "has no tests, or names no function"),
        ({"metadata": '{"func_name": "x); import os; (y"}'}, "has no tests, or names no function"),
        ({"private_test_cases": packed(pickle.dumps(_Runs()))}, "does more than hold one text"),
    ],
)
def test_a_problem_whose_tests_cannot_be_used_fails_with_a_sentence(
    data: Path, changed: dict[str, Any], why: str
) -> None:
    write_live_file(data, "test4.jsonl", row(LONGEST, LONGEST_TESTS, **changed))
    task = get_task("livecodebench-v4")
    with pytest.raises(UnfitTask, match=why):
        task.score(f"```\n{SOLVED}\n```", task.all_examples()[0], "eos")


def test_a_file_that_changes_meanwhile_is_told(data: Path) -> None:
    example = examples()[0]
    write_live_file(data, "test6.jsonl", row(LONGEST, LONGEST_TESTS))
    with pytest.raises(Stale):
        get_task("livecodebench-v6").score("```\nprint(1)\n```", example, "eos")


def test_repeats_are_counted_once_for_the_same_prompts(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_live_file(data, "test4.jsonl", row(ADD, ADD_TESTS), row({**ADD, "question_id": "again"}, ADD_TESTS))
    task = get_task("livecodebench-v4")
    assert (task.size, task.repeats) == (1, {1})
    counted = task.repeats
    monkeypatch.setattr(Example, "model_input", property(lambda self: pytest.fail("counted again")))
    assert task.size == 1
    assert task.repeats is counted
