"""A program cannot say that it has passed: the verdict is another process's, which compares plain data."""

from __future__ import annotations

import secrets

import pytest

from fsd_core.sandbox import judge, judge_process

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
