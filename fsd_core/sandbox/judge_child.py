"""The judge process: runs the benchmark's own tests, which reach the program only by proxies.

It writes ``R`` to the parent once both processes are confined, then ``passed``, ``ended`` (the program is gone) or
``failed: …``. If a process could not be confined, it writes ``E`` and the reason.
"""

from __future__ import annotations

import os
from typing import Any

from fsd_core.sandbox.channel import Ended
from fsd_core.sandbox.confinement import confine
from fsd_core.sandbox.proxies import Names, Program
from fsd_core.sandbox.wire_values import MalformedMessage

_LONGEST_TEXT = 300  # characters of a message


def main(job: dict[str, Any]) -> None:
    """Report the verdict on one program to the parent."""
    verdict = job["verdict"]
    program = Program(job["answers"], job["requests"])
    try:
        confine((job["answers"], job["requests"], verdict), job["parent"], job["seconds"], job["memory"])
        confined = program.channel.receive()
    except (OSError, Ended, MalformedMessage) as error:
        return _report(verdict, f"E{error or 'the process of the program is gone'}")
    if confined != ("confined",):
        return _report(verdict, f"E{confined[-1]}")
    _report(verdict, "R")
    try:
        program.loaded()
        names = Names(program, job["entry_points"])
        for title in ("given", "tests"):
            exec(compile(job[title], title, "exec", dont_inherit=True), names)
        program.ask("bool", True)  # it must be alive to the end
        _report(verdict, "passed")
    except Ended:
        _report(verdict, "ended")
    except BaseException as error:  # of the program or the tests, also SystemExit and the like
        _report(verdict, f"failed: {type(error).__name__}: {str(error)[:_LONGEST_TEXT]}")
    return None


def _report(verdict: int, text: str) -> None:
    os.write(verdict, text.encode("utf-8", "replace"))
