"""Judges one program from outside: starts confined processes, reads the verdict and ends them."""

from __future__ import annotations

import marshal
import os
import platform
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from io import FileIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType
from typing import Any

from fsd_core.errors import FsdError, InvalidSetting
from fsd_plugins.code.sandbox import confinement

# Modules that a child runs, in import order. The last one is its role.
_MODULES = {
    "program": ("channel", "confinement", "program_child"),
    "judge": ("channel", "confinement", "judge_child"),
    "printing": ("confinement", "printing_child"),
}

# Not a virtual environment's interpreter, which would reveal its path.
_PYTHON = getattr(sys, "_base_executable", None) or sys.executable

# A child gets our code from its standard input. It cannot open our files and need not know their paths.
_START = """
import marshal, os, sys
with open(0, "rb", closefd=False) as memory:
    job = marshal.load(memory)
for name, code in job["modules"]:
    role = sys.modules[name] = type(sys)(name)
    exec(code, role.__dict__)
for name, _ in job["modules"]:
    del sys.modules[name]
role.main(job)
os._exit(0)
"""


def start(role: str, folder: str, pipes: dict[str, FileIO], job: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start a bare interpreter in ``folder`` that does a job of ``role`` with these pipe ends.

    Its environment is empty. The job is passed in memory, not in a pipe, so neither side waits for the other. Raises
    ``OSError``.
    """
    descriptors = {name: pipe.fileno() for name, pipe in pipes.items()}
    content = marshal.dumps({"modules": _code(role), **descriptors, **job})
    memory = os.memfd_create("job", os.MFD_CLOEXEC)
    try:
        with open(memory, "wb", closefd=False) as stream:
            stream.write(content)
        os.lseek(memory, 0, os.SEEK_SET)
        return subprocess.Popen(
            [_PYTHON, "-I", "-S", "-B", "-c", _START],
            cwd=folder, env={}, stdin=memory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=tuple(descriptors.values()), start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(memory)


def end(child: subprocess.Popen[bytes]) -> None:
    """Kill a child with its process group and wait until it is gone."""
    if child.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@cache
def _code(role: str) -> tuple[tuple[str, CodeType], ...]:
    """Return the modules of a role by name. They contain no path of this machine."""
    modules = []
    for name in _MODULES[role]:
        source = Path(__file__).with_name(f"{name}.py").read_bytes()
        modules.append((f"{__package__}.{name}", compile(source, f"<{name}>", "exec", dont_inherit=True)))
    return tuple(modules)


STARTING = 30.0
"""seconds in which both processes must be ready; the program's time is counted from then on"""
SPARE = 2.0
"""seconds of wall time beyond the CPU time"""
ENDING = 1.0
"""seconds that a process may take to end after its pipe is closed"""
_LONGEST_REPORT = 4096  # bytes
_CHUNK = 1 << 16  # bytes
_WIDTH = 200  # characters
OUT_OF_TIME = (-24, -9)  # SIGXCPU and SIGKILL, which end a process that has used up its CPU time


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


@dataclass(frozen=True)
class _Judgement:
    """Both processes, and the pipe that carries the verdict of the judge."""

    program: subprocess.Popen[bytes]
    judge: subprocess.Popen[bytes]
    verdict: FileIO


def judged_program(
    program: str, tests: str, given: str, entry_points: Collection[str], seconds: float, memory: int
) -> str:
    """Return the verdict. See :func:`fsd_plugins.code.sandbox.judge`.

    Raises ``FsdError`` if the processes cannot be started and confined, which no program can cause.
    """
    limits = {"parent": os.getpid(), "seconds": seconds, "memory": memory}
    benchmark = {"tests": tests, "given": given, "entry_points": list(entry_points)}
    with ExitStack() as stack:
        try:
            judgement = _begin(stack, {"program": program, **limits}, {**benchmark, **limits})
        except OSError as error:
            raise unconfined(error.strerror or str(error)) from error
        report = _Stream(judgement.verdict, _LONGEST_REPORT)
        in_time = _read_streams([report], seconds) is not None
        output = bytes(report.content)
        if output[:1] != b"R":
            reason = output[1:].decode("utf-8", "replace") if in_time else f"no answer within {STARTING:g} s"
            raise unconfined(reason or "the process ended")
        if output == b"Rpassed":
            return "passed"
        failure = _judge_failure(output[1:], judgement) if in_time else None
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


def _read_streams(streams: Sequence[_Stream], seconds: float) -> float | None:
    """Read streams until they end or one holds too much. Return the deadline, or ``None`` once it is over.

    It is ``seconds`` and ``SPARE`` from the first byte of the first one on.
    """
    deadline = time.monotonic() + STARTING
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
            started, deadline = True, time.monotonic() + seconds + SPARE
    return deadline


def _status(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Return the exit status of a process whose pipe is closed, so that it is about to end, or pretends to.

    ``None`` if it ran out of time.
    """
    try:
        status = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    return None if status in OUT_OF_TIME else status


def _judge_failure(verdict: bytes, judgement: _Judgement) -> str | None:
    """Return why a program failed, or ``None`` if it, or the judge with what it sent, ran out of time."""
    if verdict.startswith(b"failed: "):
        return verdict.removeprefix(b"failed: ").decode("utf-8", "replace")
    process = judgement.program if verdict == b"ended" else judgement.judge
    if _status(process, ENDING) is None:
        return None
    return "it ended itself" if verdict == b"ended" else "its tests broke off"


def one_line(text: str) -> str:
    """Return text that a program may have chosen, without control characters and those that reverse a line."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())[:_WIDTH]


def unconfined(reason: str) -> FsdError:
    return FsdError(
        f"A program written by a model could not be judged, because its processes could not be confined "
        f"({reason}): try again, or choose another task."
    )


@cache
def refusal() -> str | None:
    """Return why this machine runs no programs, as a sentence, or ``None`` if it does. Tried once per process."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return _sentence("this is not Linux on x86-64")
    if not confinement.abi():
        return _sentence("its kernel offers no Landlock, as Linux does from 5.13 on where it is enabled")
    try:
        verdict = judged_program("def one():\n    return 1\n", "assert one() == 1\n", "", (), 5.0, 1 << 30)
    except FsdError as error:
        return str(error)
    return None if verdict == "passed" else _sentence(f"a harmless program did not run: {verdict}")


def require_sandbox() -> None:
    """Raise ``InvalidSetting`` if programs are not run on this machine."""
    sentence = refusal()
    if sentence is not None:
        raise InvalidSetting(sentence)


def _sentence(reason: str) -> str:
    return (
        "Programs written by a model run only where the kernel can confine them, and this machine cannot "
        f"({reason}): choose another task."
    )


LONGEST_OUTPUT = 1 << 25
"""bytes that a program may print"""


@dataclass(frozen=True)
class Printed:
    """The output of a program. ``failure`` says why it did not end properly, as a verdict does; empty if it did."""

    text: str
    failure: str = ""


def printed_program(program: str, given: str, seconds: float, memory: int) -> Printed:
    """Return the program's output. See :func:`fsd_plugins.code.sandbox.printed_by`.

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
        deadline = _read_streams(streams, seconds)
        said, output = (bytes(stream.content) for stream in streams)
        if said[:1] != b"R":
            raise unconfined(said[1:].decode("utf-8", "replace") or "the process ended, or did not answer")
        if len(output) > LONGEST_OUTPUT:
            return Printed("", f"failed: it printed more than {LONGEST_OUTPUT:,} bytes")
        failure = _printing_failure(said[1:], process, deadline) if deadline is not None else None
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


def _printing_failure(raised: bytes, process: subprocess.Popen[bytes], deadline: float) -> str | None:
    """Return why a program failed, an empty text if it did not, ``None`` if it ran out of time."""
    status = _status(process, max(ENDING, deadline - time.monotonic()))
    if status is None:
        return None
    return raised.decode("utf-8", "replace") or ("it ended itself" if status else "")
