"""Programs that a model wrote are judged as one interpreter would judge them, and nothing of them stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fsd_core.errors import FsdError
from fsd_core.sandbox import LONGEST_PROGRAM, judge, judge_process
from tests.tools.sizes import PATIENCE

NODES = """
class Node:
    def __init__(self, value): self.value, self.left = value, None
    def __eq__(self, other): return True
    def total(self): return self.value + (0 if self.left is None else self.left.total())
    def __iter__(self): return iter([self.value])
    def __len__(self): return 3
    def __bool__(self): return False
    def __getitem__(self, key): return key * 2
    def __setitem__(self, key, value): self.value = (key, value)
    def __str__(self): return "a node"
def total(node): return node.total()
def upto(n):
    while n: yield n; n -= 1
"""


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("import math, re, itertools, typing\ng = math.gcd", "assert g(12, 18) == 6"),
        ("def f(*a, **k): return a, k", "assert f(1, [2], x={3}) == ((1, [2]), {'x': {3}})"),
        ("f = lambda: float('nan')", "x = f(); assert x != x and isinstance(x, float)"),
        ("f = lambda: 10 ** 20000", "assert f() == 10 ** 20000"),
        ("f = lambda: chr(0xd800)", "assert f() == chr(0xd800)"),
        ("f = lambda: None", "assert f() is None and f() == None and not f()"),
        ("f = lambda x: x > 1", "assert f(2) is True and f(1) is False"),
        ("from collections import *\nf = Counter", "assert f('aab').most_common(1) == [('a', 2)]"),
        ("from collections import *\nf = lambda: deque([1], 1)", "d = f(); d.append(2); assert list(d) == [2]"),
        ("from collections import *\nf = lambda: namedtuple('P', 'x')(1)", "assert f() == (1,)"),
        ("from fractions import *\nf = lambda: Fraction(1, 2)", "assert f() == 0.5 and abs(f() - 1) < 1"),
        ("from decimal import *\nf = lambda: Decimal('1.5')", "assert f() == 1.5"),
        ("f = lambda d: d.keys()", "assert f({1: 2}) == {1} and list(f({1: 2})) == [1]"),
        ("import math", "assert math.fabs(-1) == 1"),  # a module that the program has imported
        ("def sum(a, b): return a * b", "assert sum(3, 4) == 12"),  # an entry point that is called like a built-in
        (NODES, "root = Node(1); root.left = Node(2); assert total(root) == 3 and root.left.value == 2"),
        (NODES, "n = Node(1); assert n == n and n in [n] and list(n) == [1] and len(n) == 3 and not n and n[4] == 8"),
        (NODES, "n = Node(1); n['k'] = 5; assert n.value == ('k', 5) and str(n) == 'a node'"),
        (NODES, "assert list(upto(3)) == [3, 2, 1] and next(upto(2)) == 2 and sorted(upto(2)) == [1, 2]"),
        (NODES, "del Node.total\ntry: total(Node(1))\nexcept AttributeError: pass"),
        (
            "def f(x): return x[0]",
            "try: f(())\nexcept IndexError as e: assert 'out of range' in str(e)\nelse: assert 0",
        ),
        ("class Odd(KeyError): pass\ndef f(): raise Odd(3)", "try: f()\nexcept KeyError: pass\nelse: assert 0"),
        ("def f(n): return n and 1 + f(n - 1)", "assert f(997) == 997"),  # as deep as elsewhere
        (
            "x: 'unknown' = 1\nimport dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\nf = lambda: P(3)",
            "f().x",
        ),
        ("from __future__ import annotations\ndef f(x: Unknown): return x", "assert f(1) == 1"),
        ("import platform, datetime\nf = lambda: datetime.date(2024, 2, 29).strftime('%j')", "assert f() == '060'"),
        ("import sqlite3, hashlib, zlib, ssl, json.tool, xml.dom.minidom, unittest, statistics", ""),
    ],
)
def test_what_is_right_passes(program: str, tests: str) -> None:
    assert judge(program, tests, entry_points=["sum"]) == "passed"


@pytest.mark.parametrize(
    ("program", "tests", "verdict"),
    [
        ("def f(): return 2", "assert f() == 1", "failed: AssertionError:"),
        ("def f(): return 2", "assert f() == 1, 'two is not one'", "failed: AssertionError: two is not one"),
        ("def f(:\n  pass", "assert f() == 1", "failed: SyntaxError: invalid syntax (program, line 1)"),
        ("def f(): return [][0]", "assert f() == 1", "failed: IndexError: list index out of range"),
        ("class Odd(Exception): pass\ndef f(): raise Odd('so')", "f()", "failed: Odd: so"),
        ("def f(): raise StopIteration", "assert all(map(lambda _: f(), 'ab'))", "failed: StopIteration:"),
        ("def f(): raise ExceptionGroup('two', [KeyError(1)])", "f()", "failed: ExceptionGroup: two (1 sub-exception)"),
        ("def f(): ''.encode().decode('x')\ndef g(): b'\\xff'.decode()", "g()", "failed: UnicodeDecodeError: 'utf-8'"),
        ("g = 1", "assert f() == 1", "failed: NameError: name 'f' is not defined"),
        ("import math as m", "math.pi", "failed: NameError: name 'math' is not defined"),
        ("f = print", "f(lambda: 1)", "failed: TypeError: The tests cannot hand a 'function' to the program"),
        ("raise SystemExit(0)", "", "failed: SystemExit: 0"),  # it left before its tests
        ("import os; os._exit(0)", "", "failed: it ended itself"),
        ("import os\ndef f(): os._exit(0)", "try: f()\nexcept Exception: pass", "failed: it ended itself"),
        ("import numpy", "", "failed: ModuleNotFoundError: No module named 'numpy'"),
        ("input()", "", "failed: EOFError: EOF when reading a line"),
        ("x = '" + "x" * LONGEST_PROGRAM + "'", "", "failed: it is longer than 200,000 bytes"),
        ("\0", "", "failed: "),
        ("'\ud800'", "", "failed: UnicodeEncodeError"),
        ("(" * 10_000, "", "failed: "),
        ("raise ValueError('a\\nb\\x1b[31m\\u202ec\\ud800d')", "", "failed: ValueError: a b [31m c?d"),
        ("raise ValueError('é' * 10**6)", "", "failed: ValueError: " + "é" * 180),
    ],
)
def test_what_is_wrong_fails_and_says_how(program: str, tests: str, verdict: str) -> None:
    told = judge(program, tests)
    assert told.startswith(verdict)
    assert len(told) <= 200
    assert told.isprintable()


def test_the_benchmark_s_own_code_stands_before_the_program_s() -> None:
    given = "import math\ndef helper(x): return x + 1\n"
    tests = "assert helper(1) == 2 and math.fabs(-1) == 1 and len([f(1)]) == 1"
    assert judge("def helper(x): return 7\ndef len(x): return 7\ndef f(x): return x", tests, given) == "passed"


def test_what_a_program_prints_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    assert judge("import sys\nfor _ in range(100_000): print('x' * 100); print('y', file=sys.stderr)", "") == "passed"
    assert capfd.readouterr() == ("", "")


def test_a_program_gets_no_environment_and_an_empty_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    program = "import os\nenvironment, folder = dict(os.environ), os.listdir()"
    assert judge(program, "assert not set(environment) - {'LC_CTYPE'}, environment\nassert folder == []") == "passed"


def children(of: int | None = None) -> set[str]:
    """Process ids of the children of this process, or of another one."""
    threads = Path("/proc", str(of or os.getpid()), "task").iterdir()
    return {pid for thread in threads for pid in (thread / "children").read_text().split()}


@pytest.mark.parametrize(
    "program",
    [
        "def f(): return 1",
        "def f(): return 2",
        "while True: pass",
        "import time; time.sleep(99)",
        "import os; os._exit(3)",
    ],
)
def test_nothing_stays_behind(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(judge_process, "SPARE", 0.1)
    before, descriptors = children(), len(os.listdir("/proc/self/fd"))
    judge(program, "assert f() == 1", seconds=0.5)
    assert children() == before
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_an_interrupt_leaves_nothing_behind() -> None:
    before = children()

    def interrupt() -> None:
        until(lambda: _sleeping(sorted(children() - before)))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        judge("import time; time.sleep(999)", "")
    thread.join()
    assert children() == before


def test_programs_die_with_the_process_that_judges_them(tmp_path: Path) -> None:
    script = "from fsd_core.sandbox import judge; judge('import time; time.sleep(999)', '', seconds=600)"
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # where it leaves an empty folder
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2], env=environment)
    until(lambda: _sleeping(sorted(children(parent.pid))))
    found = children(parent.pid)
    parent.kill()
    parent.wait()
    assert len(found) == 2
    until(lambda: not any(Path("/proc", pid).exists() for pid in found))


def until(true: Callable[[], bool]) -> None:
    """Waits for something that must come."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def _sleeping(pids: list[str]) -> bool:
    """Whether both processes are confined and one of them sleeps in the program's own call."""
    calls = [Path("/proc", pid, "syscall") for pid in pids]
    return len(calls) == 2 and any(call.exists() and call.read_text().startswith("230 ") for call in calls)


def test_judgements_side_by_side_do_not_disturb_each_other() -> None:
    verdicts: dict[int, str] = {}

    def one(number: int) -> None:
        verdicts[number] = judge(f"def f(): return {number}", f"assert f() == {number % 3}")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [verdicts[number] == "passed" for number in range(6)] == [True] * 3 + [False] * 3


def test_a_machine_that_cannot_start_processes_is_no_fault_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(judge_process.os, "pipe", exhausted)
    with pytest.raises(FsdError, match="Too many open files"):
        judge("def f(): return 1", "assert f() == 1")
