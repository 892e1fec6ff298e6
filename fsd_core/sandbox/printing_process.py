"""Runs one program on one input from outside: starts a confined process and reads what it prints."""

from __future__ import annotations

import os
import select
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import FileIO
from tempfile import TemporaryDirectory

from fsd_core.sandbox import judge_process
from fsd_core.sandbox.children import end, start
from fsd_core.sandbox.judge_process import OUT_OF_TIME, one_line, pipe, unconfined

LONGEST_OUTPUT = 1 << 25
"""bytes that a program may print"""
_LONGEST_REPORT = 4096  # bytes
_CHUNK = 1 << 16  # bytes


@dataclass(frozen=True)
class Printed:
    """The output of a program. ``failure`` says why it did not end properly, as a verdict does; empty if it did."""

    text: str
    failure: str = ""


@dataclass
class _Stream:
    """One pipe from the process: what came, and how much may come."""

    pipe: FileIO
    most: int
    content: bytearray = field(default_factory=bytearray)
    is_open: bool = True

    def read(self) -> None:
        """Read what is there. The pipe has something to read, or has been closed."""
        chunk = os.read(self.pipe.fileno(), _CHUNK)
        self.is_open = bool(chunk)
        self.content += chunk


def run(program: str, given: str, seconds: float, memory: int) -> Printed:
    """Return the program's output. See :func:`fsd_core.sandbox.printed_by`.

    Raises ``FsdError`` if the process cannot be started and confined, which no program can cause.
    """
    job = {"program": program, "parent": os.getpid(), "seconds": seconds, "memory": memory}
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(TemporaryDirectory(prefix="fsd-program-"))
            (report, to_report), (printed, to_printed) = pipe(stack), pipe(stack)
            descriptors = {"report": to_report, "printed": to_printed, "given": _file_of(given, stack)}
            process = start("printing", folder, descriptors, job)
        except OSError as error:
            raise unconfined(error.strerror or str(error)) from error
        stack.callback(end, process)
        for inherited in descriptors.values():
            inherited.close()
        streams = (_Stream(report, _LONGEST_REPORT), _Stream(printed, LONGEST_OUTPUT))
        deadline = _read(streams, seconds)
        said, output = (bytes(stream.content) for stream in streams)
        if said[:1] != b"R":
            raise unconfined(said[1:].decode("utf-8", "replace") or "the process ended, or did not answer")
        if len(output) > LONGEST_OUTPUT:
            return Printed("", f"failed: it printed more than {LONGEST_OUTPUT:,} bytes")
        failure = _failure(said[1:], process, deadline) if deadline is not None else None
        if failure is None:
            return Printed("", f"stopped after {seconds:g} s")
        return Printed(output.decode("utf-8", "replace"), one_line(f"failed: {failure}") if failure else "")


def _file_of(text: str, stack: ExitStack) -> FileIO:
    """Return a file in memory that holds a text and stands at its beginning. Raises ``OSError``."""
    file = stack.enter_context(FileIO(os.memfd_create("given", os.MFD_CLOEXEC), "r+"))
    content = memoryview(text.encode("utf-8", "surrogatepass"))
    while content:
        content = content[file.write(content) :]
    file.seek(0)
    return file


def _read(streams: tuple[_Stream, _Stream], seconds: float) -> float | None:
    """Read both until they end or hold too much. Return the deadline, or ``None`` once it is over.

    It is ``seconds`` from the first byte of the first one on.
    """
    deadline = time.monotonic() + judge_process.STARTING
    poller, started = select.poll(), False
    by_number = {stream.pipe.fileno(): stream for stream in streams}
    for number in by_number:
        poller.register(number, select.POLLIN)
    while any(stream.is_open for stream in streams) and all(len(each.content) <= each.most for each in streams):
        remaining = deadline - time.monotonic()
        events = poller.poll(1000 * remaining) if remaining > 0 else []
        if not events:
            return None
        for number, _ in events:
            by_number[number].read()
            if not by_number[number].is_open:
                poller.unregister(number)
        if not started and streams[0].content:
            started, deadline = True, time.monotonic() + seconds + judge_process.SPARE
    return deadline


def _failure(raised: bytes, process: subprocess.Popen[bytes], deadline: float) -> str | None:
    """Return why a program failed, an empty text if it did not, ``None`` if it ran out of time."""
    try:  # its pipes are closed, so it is about to end, or pretends to
        status = process.wait(timeout=max(judge_process.ENDING, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    if status in OUT_OF_TIME:
        return None
    return raised.decode("utf-8", "replace") or ("it ended itself" if status else "")
