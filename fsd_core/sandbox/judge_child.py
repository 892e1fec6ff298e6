"""The process of the judge: runs the benchmark's own tests, which reach the program by proxies alone.

It writes to the parent ``R`` once both processes are confined, then ``passed``, ``ended`` (the program is gone) or
``failed: …``; or ``E`` and the reason why one could not be confined.
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
    """Tells the verdict of one program to the parent."""
    verdict = job["verdict"]
    program = Program(job["answers"], job["requests"])
    try:
        confine((job["answers"], job["requests"], verdict), job["parent"], job["seconds"], job["memory"])
        confined = program.channel.receive()
    except (OSError, Ended, MalformedMessage) as error:
        return _tell(verdict, f"E{error or 'the process of the program is gone'}")
    if confined != ("confined",):
        return _tell(verdict, f"E{confined[-1]}")
    _tell(verdict, "R")
    try:
        program.loaded()
        names = Names(program, job["entry_points"])
        for title in ("given", "tests"):
            exec(compile(job[title], title, "exec", dont_inherit=True), names)
        program.ask("bool", True)  # it must be there to the end
        _tell(verdict, "passed")
    except Ended:
        _tell(verdict, "ended")
    except BaseException as error:  # of the program or the tests, SystemExit and the like among them
        _tell(verdict, f"failed: {type(error).__name__}: {str(error)[:_LONGEST_TEXT]}")
    return None


def _tell(verdict: int, text: str) -> None:
    os.write(verdict, text.encode("utf-8", "replace"))
