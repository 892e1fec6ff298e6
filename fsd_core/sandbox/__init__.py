"""Judges programs that a model wrote, without trusting them: they see nothing of the machine and decide nothing.

:mod:`.runner` starts two processes for each program. *The program* (:mod:`.program_child`) runs the model's code; *the
judge* (:mod:`.judge_child`) runs the benchmark's own tests and reaches the program over a pipe, by values
(:mod:`.values`). Both are confined (:mod:`.confinement`) by Landlock and seccomp. Only the judge can tell a verdict.
docs/benchmarks.md says what that promises.
"""

from __future__ import annotations

from collections.abc import Collection

from fsd_core.sandbox import judge_process
from fsd_core.sandbox.availability import refusal, require_sandbox

__all__ = ["LONGEST_PROGRAM", "MEMORY", "SECONDS", "judge", "refusal", "require_sandbox"]

SECONDS = 5.0
MEMORY = 1 << 30
"""bytes of each of the two processes"""
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
    """Whether ``program`` passes ``tests``: ``passed``, ``failed: <why>`` or ``stopped after <n> s``.

    ``given`` is code of the benchmark that runs before its tests and beside them. A name that neither of the two
    defines, nor Python, is the program's; one of ``entry_points`` is, even if Python has a built-in of that name.
    ``seconds`` of CPU and ``memory`` bytes are for each process. The answer is one line of at most 200 characters.

    Raises ``InvalidSetting`` on a machine that cannot confine a program, and ``FsdError`` if this one fails to.
    """
    require_sandbox()
    if len(program.encode("utf-8", "surrogatepass")) > LONGEST_PROGRAM:
        return f"failed: it is longer than {LONGEST_PROGRAM:,} bytes"
    return judge_process.run(program, tests, given, entry_points, seconds, memory)
