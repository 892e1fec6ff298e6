"""Judges programs that a model wrote without trusting them. They see nothing of the machine and decide nothing.

:mod:`.judge_process` starts two processes for each program. *The program* (:mod:`.program_child`) runs the model's
code. *The judge* (:mod:`.judge_child`) runs the benchmark's own tests and reaches the program over a pipe, by values
(:mod:`.channel`). Both are confined (:mod:`.confinement`) by Landlock and seccomp. Only the judge reports a
verdict. A program that reads standard input and prints is one process (:mod:`.printing_child`), confined likewise:
what it should print stays outside. docs/benchmarks.md states what this guarantees.
"""

from __future__ import annotations

from collections.abc import Collection

from fsd_plugins.code.sandbox import judge_process
from fsd_plugins.code.sandbox.judge_process import LONGEST_OUTPUT, Printed, refusal, require_sandbox

__all__ = [
    "LONGEST_OUTPUT",
    "LONGEST_PROGRAM",
    "MEMORY",
    "SECONDS",
    "Printed",
    "judge",
    "printed_by",
    "refusal",
    "require_sandbox",
]

SECONDS = 5.0
MEMORY = 1 << 30
"""bytes for each of the two processes"""
LONGEST_PROGRAM = 200_000
"""bytes of source text"""


def judge(
    program: str,
    tests: str,
    given: str = "",
    entry_points: Collection[str] = (),
    seconds: float = SECONDS,
    memory: int = MEMORY,
) -> str:
    """Return whether ``program`` passes ``tests``: ``passed``, ``failed: <why>`` or ``stopped after <n> s``.

    ``given`` is benchmark code that runs before the tests in the same namespace. A name that neither of the two nor
    Python defines is the program's. So is a name in ``entry_points``, even if Python has a built-in of that name.
    ``seconds`` of CPU and ``memory`` bytes apply to each process. The result is one line of at most 200 characters.

    Raises ``InvalidSetting`` on a machine that cannot confine a program, and ``FsdError`` if confinement fails.
    """
    require_sandbox()
    return _too_long(program) or judge_process.judged_program(program, tests, given, entry_points, seconds, memory)


def printed_by(program: str, given: str, seconds: float = SECONDS, memory: int = MEMORY) -> Printed:
    """Return the output of ``program``, at most ``LONGEST_OUTPUT`` bytes, when its standard input is ``given``.

    It runs as LiveCodeBench's authors run it: all but its imports within one function, with what is last and under
    ``if __name__ == "__main__"``. If it raises an exception or ends itself, takes more than ``seconds`` of CPU or
    ``memory`` bytes, or prints more, ``failure`` says so in the words of :func:`judge`. Raises as that does.
    """
    require_sandbox()
    if failure := _too_long(program):
        return Printed("", failure)
    return judge_process.printed_program(program, given, seconds, memory)


def _too_long(program: str) -> str:
    is_longer = len(program.encode("utf-8", "surrogatepass")) > LONGEST_PROGRAM
    return f"failed: it is longer than {LONGEST_PROGRAM:,} bytes" if is_longer else ""
