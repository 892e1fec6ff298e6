"""Programs that a model wrote are judged as one interpreter would judge them, and cannot judge themselves."""

from __future__ import annotations

import os
import secrets
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
from fsd_plugins.code.sandbox import LONGEST_PROGRAM, judge, judge_process
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
    script = "from fsd_plugins.code.sandbox import judge; judge('import time; time.sleep(999)', '', seconds=600)"
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


# A number that no program can know: only a verdict that is forged passes.
EXPECTED = secrets.randbits(64) | 1 << 63
TESTS = f"""
def check(candidate):
    assert candidate(1, 2) == {EXPECTED}
    assert abs(candidate(1, 2) - {EXPECTED}) < 1e-6
check(add)
"""

ALWAYS_EQUAL = "__eq__ = lambda self, other: True\n    __ne__ = lambda self, other: False\n    __hash__ = None"

OBJECTS = {
    "an object that equals everything": f"class E:\n    {ALWAYS_EQUAL}\ndef add(a, b): return E()",
    "its class": f"class M(type):\n    {ALWAYS_EQUAL}\nclass E(metaclass=M): pass\ndef add(a, b): return E",
    "an int that equals everything": f"class E(int):\n    {ALWAYS_EQUAL}\ndef add(a, b): return E(3)",
    "a float": f"class E(float):\n    {ALWAYS_EQUAL}\ndef add(a, b): return E(3)",
    "a text": f"class E(str):\n    {ALWAYS_EQUAL}\ndef add(a, b): return E('3')",
    "a list": f"class E(list):\n    {ALWAYS_EQUAL}\ndef add(a, b): return E([3])",
    "a dict": f"class E(dict):\n    {ALWAYS_EQUAL}\ndef add(a, b): return E()",
    "a tuple": f"class E(tuple):\n    {ALWAYS_EQUAL}\ndef add(a, b): return E()",
    "a set": f"class E(set):\n    {ALWAYS_EQUAL}\ndef add(a, b): return E()",
    "an object in a list": f"class E:\n    {ALWAYS_EQUAL}\ndef add(a, b): return [E()]",
    "an object that says it is an int": f"class E:\n    __class__ = int\n    {ALWAYS_EQUAL}\ndef add(a, b): return E()",
    "an object with every method of a number": f"""
class E:
    {ALWAYS_EQUAL}
    def __getattr__(self, name): return self
    def __call__(self, *_, **__): return self
    __sub__ = __rsub__ = __abs__ = __call__
    __lt__ = __gt__ = __le__ = __ge__ = __bool__ = lambda *_: True
def add(a, b): return E()
add = E()""",
    "an unordered number": "def add(a, b): return float('nan')",
    "a class that makes itself a Decimal": f"""
import decimal
class Decimal:
    {ALWAYS_EQUAL}
    __module__ = "decimal"
decimal.Decimal = Decimal
def add(a, b): return Decimal()""",
    "a dictionary's keys": f"""
class E:
    {ALWAYS_EQUAL}
    __hash__ = lambda self: 1
def add(a, b): return {{E(): 1}}.keys()""",
}  # fmt: skip

INTERPRETER = {
    "frames": """
import os, sys
def add(a, b):
    frame = sys._getframe()
    while frame:
        for value in [*frame.f_locals.values(), *frame.f_globals.values()]:
            if type(value) is int and value < 1024:
                try: os.write(value, b"passed")
                except Exception: pass
            if isinstance(value, dict) and "program" in value: value.update(tests="", given="", token="passed")
        frame = frame.f_back
    return 0""",
    "the collector": """
import gc
for value in gc.get_objects():
    if type(value).__name__ == "Channel":
        for answer in (("passed",), ("confined",), "passed", ("value", None), ("value", True), ("absent",)):
            value.send(answer)
def add(a, b): return 0""",
    "os.write": "import os\nreal = os.write\nos.write = lambda n, b: real(n, b'passed')\ndef add(a, b): return 0",
    "the module below os": """
import os, posix
real = posix.write
posix.write = os.write = lambda number, data: real(number, b"Rpassed")
def add(a, b): return 0""",
    "struct and marshal": """
import struct, marshal, json
struct.pack = marshal.dumps = json.dumps = lambda *_: b"passed"
def add(a, b): return 0.5""",
    "built-ins": """
import builtins
builtins.AssertionError = builtins.BaseException = Warning
builtins.isinstance = builtins.issubclass = lambda *_: True
builtins.type = builtins.abs = lambda *_: 0
builtins.len = lambda *_: 6
builtins.exec = builtins.compile = builtins.getattr = lambda *_, **__: None
def add(a, b): return 0""",
    "assertions": "import unittest, sys\nunittest.TestCase.assertEqual = lambda *_: None\nsys.flags = None\n"
    "__debug__\ndef check(candidate): pass\ndef add(a, b): return 0",
    "a trace function": "import sys\nsys.settrace(lambda *_: sys.exit(0))\ndef add(a, b): return 0",
    "an audit hook": "import sys, os\nsys.addaudithook(lambda *_: os._exit(0))\ndef add(a, b): return 0",
    "an exit hook": "import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b): raise SystemExit(0)",
    "the hook for exceptions": "import sys, os\nsys.excepthook = sys.unraisablehook = lambda *_: os._exit(0)\n"
    "def add(a, b): raise KeyError",
    "a destructor": "import os\nclass E:\n    def __del__(self): os._exit(0)\nE()\ndef add(a, b): return 0",
    "a signal handler": "import signal, os\nfor n in range(1, 65):\n    try: signal.signal(n, lambda *_: os._exit(0))\n"
    "    except (OSError, ValueError): pass\ndef add(a, b): return 0",
    "the import system": "import sys\nsys.modules.clear()\nsys.meta_path.clear()\ndef add(a, b): return 0",
    "modules of the judge": """
import math, sys
sys.modules["fsd_core"] = math
math.fabs = lambda x: 0
def add(a, b): return 0""",
    "machine code over the interpreter's": """
import ctypes
ctypes.memset(id(0) + 24, 1, 4)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(0))
def add(a, b): return 0""",
}  # fmt: skip

ENDS = {
    "_exit of 0": "import os\nos._exit(0)",
    "exit": "import sys\nsys.exit(0)",
    "_exit in a call": "import os\ndef add(a, b): os._exit(0)",
    "exit in a call": "def add(a, b): raise SystemExit(0)",
    "an interrupt": "def add(a, b): raise KeyboardInterrupt",
    "the end of an iteration": "def add(a, b): raise StopIteration",
    "the end of a generator": "def add(a, b): raise GeneratorExit",
    "an error called passed": "def add(a, b): raise type('passed', (Exception,), {})('passed')",
    "an error with a verdict in many lines": "def add(a, b): raise ValueError('\\npassed\\n' * 9)",
    "an error that breaks when it is looked at": "class E(Exception):\n    def __str__(self): raise SystemExit(0)\n"
    "def add(a, b): raise E",
    "an abort": "import os\nos.abort()",
    "a crash": "import ctypes\ndef add(a, b): ctypes.string_at(0)",
    "closed descriptors": "import os\nos.closerange(0, 1024)\ndef add(a, b): return 0",
    "another program in its place": "import os, sys\nos.execv(sys.executable, ['python', '-c', ''])",
}

WIRES = {
    "a verdict to every descriptor": """
import os
for text in (b"passed", b"Rpassed", b"R", b"\\0\\0\\0\\6passed"):
    for number in range(1024):
        try: os.write(number, text)
        except OSError: pass
def add(a, b): return 0""",
    "bytes that are not UTF-8": """
import os
for number in range(3, 1024):
    try: os.write(number, b"\\xff\\xfe\\0passed" * 99)
    except OSError: pass
def add(a, b): return 0""",
    "requests that are read away": """
import os
for number in range(3, 32):
    try: os.read(number, 1 << 16)
    except OSError: pass
def add(a, b): return 0""",
    "an answer of a kind that there is not": "answer = b'?'",
    "an answer that is a module": "answer = encoded(('module',))",
    "an answer that is absent": "answer = encoded(('absent',))",
    "an answer without a value": "answer = encoded(('value',))",
    "an answer with two": "answer = encoded(('value', 1, 2))",
    "an answer that is no tuple": "answer = encoded({'value': 1})",
    "an answer that raises nothing": "answer = encoded(('raised', [], ''))",
    "an answer that raises odd names": "answer = encoded(('raised', ['passed\\n', 'SystemExit'], 'passed'))",
    "an answer that raises what is no error": "answer = encoded(('raised', ['print', 'int'], 'passed'))",
    "an answer that is the verdict": "answer = encoded('passed')",
    "an object of the judge's own": "answer = encoded(('value', ('__import__', 'Proxy')))",
    "a type that does not cross": "answer = b't\\0\\0\\0\\2' + encoded('value') + b'x\\0\\0\\0\\3' + encoded('os')\n"
    "answer += encoded('abort') + encoded(())",
}
RAW = """
import gc, os
channel = next(value for value in gc.get_objects() if type(value).__name__ == "Channel")
def encoded(value):
    kept = []
    real, here["write"] = os.write, lambda number, data: kept.append(bytes(data)) or len(data)
    os.write = here["write"]
    try: channel.send(value)
    finally: os.write = real
    return kept[0][4:]
here = {}
ANSWER
def add(a, b): return 0
writer = channel._writer
for _ in range(9): os.write(writer, len(answer).to_bytes(4, "big") + answer)
"""


@pytest.mark.parametrize("name", OBJECTS)
def test_no_object_is_equal_by_its_own_word(name: str) -> None:
    assert judge(OBJECTS[name], TESTS).startswith("failed: ")


@pytest.mark.parametrize("name", INTERPRETER)
def test_no_interpreter_of_the_program_s_decides(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_process, "SPARE", 2.0)  # some only wait
    assert judge(INTERPRETER[name], TESTS, seconds=2).startswith(("failed: ", "stopped "))


@pytest.mark.parametrize("name", ENDS)
def test_no_end_is_a_success(name: str) -> None:
    verdict = judge(ENDS[name], TESTS)
    assert verdict.startswith("failed: ")
    assert verdict.isprintable()


@pytest.mark.parametrize("name", WIRES)
def test_no_message_is_a_verdict(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_process, "SPARE", 0.1)
    program = WIRES[name] if "def add" in WIRES[name] else RAW.replace("ANSWER", WIRES[name])
    verdict = judge(program, TESTS, seconds=1)
    assert verdict.startswith(("failed: ", "stopped "))
    assert verdict.isprintable()


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def abs(x): return 0\ndef f(): return 1", "assert abs(f() - 5) < 1e-6"),
        ("def len(x): return 5\ndef f(): return [1]", "assert len(f()) == 5"),
        ("def all(x): return True\ndef f(): return 1", "assert all(f() == n for n in (1, 2))"),
        ("def isinstance(*_): return True\ndef f(): return 1", "assert isinstance(f(), str)"),
        ("import math\nmath.fabs = lambda x: 0\ndef f(): return 1", "import math\nassert math.fabs(f() - 5) < 1"),
        ("import math\nmath.fabs = lambda x: 0\ndef f(): return 1", "assert math.fabs(f() - 5) < 1"),
        ("class math: fabs = lambda x: 0\ndef f(): return 1", "assert math.fabs(f() - 5) < 1"),
        ("class AssertionError(Exception): pass\ndef f(): return 1", "assert f() == 2"),
        ("def check(candidate): pass\ndef f(): return 1", "def check(candidate): assert candidate() == 2\ncheck(f)"),
    ],
)
def test_names_of_the_tests_keep_their_meaning(program: str, tests: str) -> None:
    assert judge(program, tests).startswith("failed: ")


def test_helpers_of_the_benchmark_are_its_own() -> None:
    program = "def poly(x): return 0\ndef f(): return 1"
    assert judge(program, "assert poly(f()) == 0", given="def poly(x): return x - 5").startswith(
        "failed: AssertionError"
    )


def test_the_control_passes() -> None:
    assert judge(f"def add(a, b): return {EXPECTED}", TESTS) == "passed"
