"""What the tests of the sandbox share: a program that tries something, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fsd_plugins.code.sandbox import judge
from tests.tools.sizes import LONG

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
def outcome(attempt):
    try:
        return f"done: {attempt()!r}"[:500]
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
"""


def attempt(action: str, seconds: float = 5.0) -> str:
    """What came of an action: ``done: …``, the name of the error that the kernel gave, or that it failed otherwise.

    ``action`` is the body of a function; the last line may be an expression. It runs as a program does.
    """
    program = f"{_PREAMBLE}{_function('attempt', action)}def told(): return outcome(attempt)\n"
    verdict = judge(program, "raise KeyError(told())", seconds=seconds)
    return verdict.removeprefix("failed: KeyError: ").strip("'")


def attempts(actions: Sequence[str], refusals: Collection[str], before: str = "") -> list[tuple[str, str]]:
    """Those of the actions that came to something else than one of the refusals, with what they came to.

    A refusal is a part of the outcome. ``before`` is what all actions need. In the gate one program tries them one
    after the other: a program that is refused something is neither more nor less confined afterwards. Where one is not
    refused, and in ``make test-long``, each has a program of its own.
    """
    if not LONG and _all_refused(actions, refusals, before):
        return []
    told = [(action, attempt(f"{before}\n{action}".strip())) for action in actions]
    return [(action, found) for action, found in told if not _is_refused(found, refusals)]


def _all_refused(actions: Sequence[str], refusals: Collection[str], before: str) -> bool:
    functions = "".join(_function(f"attempt{i}", action) for i, action in enumerate(actions))
    every = ", ".join(f"attempt{i}" for i in range(len(actions)))
    program = f"{_PREAMBLE}{before}\n{functions}def told(): return [anything(each) for each in [{every}]]\n{_ANYTHING}"
    tests = f"""
found = told()
assert len(found) == {len(actions)}
for each in found:
    assert not each.startswith("done: ") and any(part in each for part in {list(refusals)!r}), each
"""
    return judge(program, tests, seconds=30) == "passed"


_ANYTHING = """
def anything(attempt):
    try:
        return outcome(attempt)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""


def _is_refused(outcome: str, refusals: Collection[str]) -> bool:
    return not outcome.startswith("done: ") and any(part in outcome for part in refusals)


def _function(name: str, action: str) -> str:
    *lines, last = action.splitlines()
    body = "\n".join(f"    {line}" for line in (*lines, last if last.startswith("return") else f"return {last}"))
    return f"def {name}():\n{body}\n"
