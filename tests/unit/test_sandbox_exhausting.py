"""A program that floods, hoards or never ends costs a bounded time and a bounded memory, and none of the parent's.

That the time is bounded is that there is a verdict: without its limits no program here would ever end.
"""

from __future__ import annotations

import resource

import pytest

from fsd_core.sandbox import judge, judge_process
from tests.tools.sizes import some

SECONDS, SPARE = 0.3, 0.1
GROWTH = 16 << 10  # kilobytes

FLOODS = {
    "every descriptor": """
import os
while True:
    for number in range(1024):
        try: os.write(number, b"x" * 65536)
        except OSError: pass""",
    "every descriptor in a call": """
import os
def f():
    while True:
        for number in range(3, 32):
            try: os.write(number, bytes(65536))
            except OSError: pass""",
    "answers that nobody asked for": """
import os
answer = b"t\\0\\0\\0\\2s\\0\\0\\0\\5valuel\\0\\0\\3\\xe8" + b"N" * 1000
while True:
    for number in range(3, 32):
        try: os.write(number, len(answer).to_bytes(4, "big") + answer)
        except OSError: pass""",
    "a message that is announced and never sent": """
import os, time
for number in range(3, 32):
    try: os.write(number, b"\\0\\x0f\\xff\\xff" + b"x")
    except OSError: pass
time.sleep(99)""",
    "a message byte by byte": """
import os, time
while True:
    for number in range(3, 32):
        try: os.write(number, b"\\0")
        except OSError: pass
    time.sleep(0.01)""",
    "printing": "while True: print('x' * 65536)",
    "an answer without end": "def f():\n    while True: yield 1",
    "an answer that doubles itself": "def f():\n    x = [0]\n    for _ in range(60): x = [x, x]\n    return x",
    "an answer within itself": "def f():\n    x = []\n    x.append(x)\n    return x",
    "a huge text": "f = lambda: 'x' * 10 ** 8",
    "a huge list": "f = lambda: [None] * 10 ** 7",
    "a huge number": "f = lambda: 1 << 10 ** 9",
    "objects without number": "class E: pass\nf = lambda: [E() for _ in range(10 ** 6)]",
    "an error of a huge text": "def f(): raise ValueError('x' * 10 ** 8)",
    "a range without end": "f = lambda: range(10 ** 30)",
    "an endless iterator of huge texts": "import itertools\nf = lambda: itertools.repeat('x' * 10 ** 6)",
    "a length that is none": """
class f:
    __len__ = lambda self: 10 ** 30
    __iter__ = lambda self: iter(int, 1)""",
}

HOARDS = {
    "ten gigabytes": "x = bytearray(10_000_000_000)",
    "memory bit by bit": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "mapped memory": "import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 1 << 28))",
    "recursion": "def f(): return f()\nf()",
    "recursion without a limit": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): return f()\nf()",
    "recursion in C": "x = []\nfor _ in range(10 ** 6): x = [x]\nrepr(x)",
    "a source that nests": "-" * 100_000 + "1",
    "a huge number as text": "import sys\nsys.set_int_max_str_digits(0)\nstr(1 << 10 ** 7)",
    "a power without end": "9 ** 9 ** 9 ** 9",
    "a constant": "x = 'x' * 10 ** 11",
    "a regular expression": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "a loop": "while True: pass",
    "a loop that catches all": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "a sleep": "import time\ntime.sleep(99)",
    "a lock": "import threading\nx = threading.Lock()\nx.acquire()\nx.acquire()",
    "open files": "import json\nx = []\nwhile True: x.append(open(json.__file__))",
    "a sum without end": "import itertools\nsum(itertools.count())",
    "garbage that resists": "class E:\n    def __del__(self): E()\nE()",
}  # fmt: skip


IN_THE_GATE = (
    "printing", "an answer that doubles itself", "a huge text", "objects without number", "a message byte by byte",
    "ten gigabytes", "memory bit by bit", "recursion in C", "a loop that catches all", "a sleep",
)  # fmt: skip
"""of each way out that a program has, the worst"""


@pytest.mark.parametrize("name", some([*FLOODS, *HOARDS], *IN_THE_GATE))
def test_time_and_memory_are_bounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_process, "SPARE", SPARE)
    program = FLOODS.get(name) or HOARDS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    verdict = judge(program, "assert list(f()) == [1, 2, 3]", seconds=SECONDS)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH
    assert verdict.startswith(("failed: ", "stopped after 0.3 s"))
    assert len(verdict) <= 200


def test_what_computes_too_long_is_stopped_by_the_kernel() -> None:
    assert judge("while True: pass", "", seconds=1) == "stopped after 1 s"
    assert judge("def f(): return 1", "while True: f()", seconds=1) == "stopped after 1 s"


def test_a_program_may_take_all_of_its_time_and_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_process, "SPARE", 600)  # a pause of the machine is no time of the program's
    program = "import time\nx = bytearray(1 << 29)\nwhile time.process_time() < 1: pass"
    assert judge(program, "", seconds=10) == "passed"


def test_the_memory_of_the_judge_is_bounded_too() -> None:
    program = "import itertools\nf = lambda: itertools.repeat('x' * 10 ** 6)"
    assert judge(program, "list(f())", seconds=20, memory=1 << 28).startswith("failed: MemoryError")
