"""Judges one program from outside: starts two confined processes, reads the verdict and ends both."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from tempfile import TemporaryDirectory
from typing import Any

from fsd_core.errors import FsdError
from fsd_core.sandbox.children import end, start

STARTING = 30.0
"""seconds in which both processes must be ready; the program's time is counted from then on"""
SPARE = 2.0
"""seconds of wall time beyond the CPU time"""
ENDING = 1.0
"""seconds that a process may take to end after its pipe is closed"""
_LONGEST_VERDICT = 4096  # bytes
_WIDTH = 200  # characters
OUT_OF_TIME = (-24, -9)  # SIGXCPU and SIGKILL, which end a process that has used up its CPU time


@dataclass(frozen=True)
class _Judgement:
    """Both processes, and the pipe that carries the verdict of the judge."""

    program: subprocess.Popen[bytes]
    judge: subprocess.Popen[bytes]
    verdict: FileIO


def run(program: str, tests: str, given: str, entry_points: Collection[str], seconds: float, memory: int) -> str:
    """Return the verdict. See :func:`fsd_core.sandbox.judge`.

    Raises ``FsdError`` if the processes cannot be started and confined, which no program can cause.
    """
    limits = {"parent": os.getpid(), "seconds": seconds, "memory": memory}
    benchmark = {"tests": tests, "given": given, "entry_points": list(entry_points)}
    with ExitStack() as stack:
        try:
            judgement = _begin(stack, {"program": program, **limits}, {**benchmark, **limits})
        except OSError as error:
            raise unconfined(error.strerror or str(error)) from error
        output, in_time = _read(judgement.verdict, seconds + SPARE)
        if output[:1] != b"R":
            reason = output[1:].decode("utf-8", "replace") if in_time else f"no answer within {STARTING:g} s"
            raise unconfined(reason or "the process ended")
        if output == b"Rpassed":
            return "passed"
        failure = _failure(output[1:], judgement) if in_time else None
        return f"stopped after {seconds:g} s" if failure is None else one_line(f"failed: {failure}")


def _begin(stack: ExitStack, program_job: dict[str, Any], judge_job: dict[str, Any]) -> _Judgement:
    """Start both processes, which the stack ends again. Raises ``OSError``."""
    folder = stack.enter_context(TemporaryDirectory(prefix="fsd-program-"))
    (requests, to_program), (answers, to_judge), (verdict, to_parent) = (pipe(stack) for _ in range(3))
    program = start("program", folder, {"requests": requests, "answers": to_judge}, program_job)
    stack.callback(end, program)
    judge = start("judge", folder, {"requests": to_program, "answers": answers, "verdict": to_parent}, judge_job)
    stack.callback(end, judge)
    for inherited in (requests, to_program, answers, to_judge, to_parent):
        inherited.close()
    return _Judgement(program, judge, verdict)


def pipe(stack: ExitStack) -> tuple[FileIO, FileIO]:
    """Return the read end and the write end of a pipe. The stack closes both. Raises ``OSError``."""
    reader, writer = os.pipe()
    return stack.enter_context(FileIO(reader, "r")), stack.enter_context(FileIO(writer, "w"))


def _read(verdict: FileIO, seconds: float) -> tuple[bytes, bool]:
    """Return the judge's output until it ends, and whether it ended in time: ``seconds`` from its first byte on."""
    output, deadline = b"", time.monotonic() + STARTING
    poller = select.poll()
    poller.register(verdict, select.POLLIN)
    while len(output) < _LONGEST_VERDICT:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not poller.poll(1000 * remaining):
            return output, False
        chunk = os.read(verdict.fileno(), _LONGEST_VERDICT - len(output))
        if not chunk:
            break
        if not output:
            deadline = time.monotonic() + seconds
        output += chunk
    return output, True


def _failure(verdict: bytes, judgement: _Judgement) -> str | None:
    """Return why a program failed, or ``None`` if it, or the judge with what it sent, ran out of time."""
    if verdict.startswith(b"failed: "):
        return verdict.removeprefix(b"failed: ").decode("utf-8", "replace")
    process = judgement.program if verdict == b"ended" else judgement.judge
    try:
        status = process.wait(timeout=ENDING)  # its pipe is closed, so it is about to end, or pretends to
    except subprocess.TimeoutExpired:
        status = None
    return None if status in OUT_OF_TIME else "it ended itself" if verdict == b"ended" else "its tests broke off"


def one_line(text: str) -> str:
    """Return text that a program may have chosen, without control characters and those that reverse a line."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())[:_WIDTH]


def unconfined(reason: str) -> FsdError:
    return FsdError(
        f"A program written by a model could not be judged, because its processes could not be confined "
        f"({reason}): try again, or choose another task."
    )
