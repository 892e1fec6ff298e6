"""What the tests of the sandbox share: a program that tries something, and what came of it."""

from __future__ import annotations

from fsd_core.benchmarks.sandbox import judge

# Calls of the kernel by their number: no wrapper of Python or of the C library stands between.
_PREAMBLE = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    arguments = [each if isinstance(each, bytes) else ctypes.c_long(each) for each in arguments]
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result
def outcome():
    try:
        return f"done: {attempt()!r}"[:500]
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
"""


def attempt(action: str, seconds: float = 5.0) -> str:
    """What came of an action: ``done: …``, the name of the error that the kernel gave, or that it failed otherwise.

    ``action`` is the body of a function; the last line may be an expression. It runs as a program does.
    """
    *lines, last = action.splitlines()
    body = "\n".join(f"    {line}" for line in (*lines, last if last.startswith("return") else f"return {last}"))
    program = f"{_PREAMBLE}def attempt():\n{body}\n"
    verdict = judge(program, "raise KeyError(outcome())", seconds=seconds)
    return verdict.removeprefix("failed: KeyError: ").strip("'")
