"""The process of a program that reads standard input and prints. It gets one input, and no expected output.

It writes ``R`` to the parent once it is confined, then what the program raised, if it did. If it could not be
confined, it writes ``E`` and the reason.
"""

from __future__ import annotations

import ast
import atexit
import builtins
import os
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any

from fsd_plugins.code.sandbox.confinement import confine

_FRAMES = 3  # our own, below the program's
_LONGEST_TEXT = 300  # characters of an exception's message
_FUNCTION = "wrapped_function"  # as the authors call it


def main(job: dict[str, Any]) -> None:
    """Run the program on its input."""
    report = job["report"]
    try:
        standard = (job["given"], job["printed"])
        confine((report,), job["parent"], job["seconds"], job["memory"], standard)
    except OSError as error:
        return _write(report, f"E{error}")
    _write(report, "R")
    sys.setrecursionlimit(sys.getrecursionlimit() + _FRAMES)
    module = sys.modules["program"] = sys.modules["__main__"] = ModuleType("program")
    for name in ("exit", "quit"):  # as in an interpreter that is started in the usual way
        setattr(builtins, name, sys.exit)
    try:
        if "threading" in job["program"]:
            _run_threads_at_once()
        with suppress(SystemExit):
            exec(compile(_as_function(job["program"]), "program", "exec", dont_inherit=True), module.__dict__)
            module.__dict__[_FUNCTION]()
        atexit._run_exitfuncs()
        for stream in filter(None, (sys.stdout, sys.__stdout__)):
            with suppress(ValueError, AttributeError):  # closed by the program, or no stream
                stream.flush()
    except BaseException as error:
        _write(report, _described(error))
    return None


def _as_function(program: str) -> ast.Module:
    """Return a module of a program's imports and one function of all else, as LiveCodeBench's authors run it. What is
    last and under ``if __name__ == "__main__"`` belongs to it."""
    tree, module = ast.parse(program, "program"), ast.parse(f"def {_FUNCTION}(): pass")
    if tree.body and isinstance(last := tree.body[-1], ast.If) and ast.unparse(last.test) == "__name__ == '__main__'":
        tree.body[-1:] = last.body
    function: Any = module.body[0]
    imports = (ast.Import, ast.ImportFrom)
    function.body[:0] = [part for part in tree.body if not isinstance(part, imports)]
    module.body[:0] = [part for part in tree.body if isinstance(part, imports)]
    return module


def _run_threads_at_once() -> None:
    """Let a thread run where it is started. Programs use one to get a larger stack, and none can be had here."""
    import threading

    threading.Thread.start = lambda self: self.run()
    threading.Thread.join = lambda self, timeout=None: None


def _described(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {str(error)[:_LONGEST_TEXT]}"
    except BaseException:  # of a class of the program
        return "an exception without a text"


def _write(report: int, text: str) -> None:
    with suppress(OSError):  # the program has closed it
        os.write(report, text.encode("utf-8", "replace"))
