"""Processes for what strangers wrote: the kernel ends one that takes too much time or memory.

A process does one kind of work, see ``_WORK``. It is started by the first request, and again after it was ended. A
request is the seconds of a processor that it may take and bytes behind their length; an answer is bytes behind theirs.
This file is also the program of the process, which imports nothing else of the package but ``table_files.py``.
"""

from __future__ import annotations

import json
import os
import re
import resource
import runpy
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

PATIENCE = 120.0
"""seconds beyond those of a request until an answer must have come: a process is started on a busy machine, too"""
_REQUEST, _ANSWER = struct.Struct(">dQ"), struct.Struct(">?Q")
"""seconds and length of a request; whether it was refused, and length of an answer"""
_OUT_OF_MEMORY = 3
"""exit status"""
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR")
"""variables that an interpreter needs to find its packages; no secrets"""
# So that its address space stays small: an arena for each thread would reserve 64 MB.
_LEAN = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system",
}  # fmt: skip


class ProcessEnded(Exception):
    """The process was ended or broke off. The message says why, in a few words."""


class RequestRefused(Exception):
    """What the request asks for is not done. The message says why."""


class ConfinedProcess:
    """A process, and the requests to it. Thread-safe."""

    def __init__(self, work: str, memory: int, longest: int) -> None:
        """``memory``: bytes beside those of the interpreter and the libraries of its ``work``; ``longest``: bytes of an
        answer."""
        self.work, self.memory, self.longest = work, memory, longest
        self._lock = Lock()
        self._running: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def forget(self) -> None:
        """Begin anew in a forked process: what runs is its parent's, and so is whatever holds the lock."""
        self._lock = Lock()
        if self._running is not None:
            process, connection = self._running
            process.returncode = 0  # it is not ours to wait for
            connection.close()
            self._running = None

    def ask(self, request: bytes, seconds: float, within: float | None = None) -> bytes:
        """Return the answer to a request, which may take ``seconds`` of a processor and has to come ``within`` seconds.

        Raises ``RequestRefused``, and ``ProcessEnded`` if the request takes more time or memory, or breaks the process.
        """
        within = seconds + PATIENCE if within is None else within
        with self._lock:
            self._running = self._running or self._start()
            try:
                refused, answer = self._exchange(_REQUEST.pack(seconds, len(request)) + request, within)
            except BaseException as error:
                status = self._end(killed=not isinstance(error, EOFError))
                if isinstance(error, EOFError):
                    raise ProcessEnded(self._reason(status, seconds)) from None
                if isinstance(error, OSError):
                    raise ProcessEnded(f"it was not done after {within:g} s") from None
                raise
        if refused:
            raise RequestRefused(answer.decode())
        return answer

    def end(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            if self._running is not None:
                self._end(killed=True)

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", __file__, self.work, *map(str, (self.memory, self.longest))],
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | _LEAN,
                stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        return process, ours

    def _end(self, *, killed: bool) -> int:
        """Return the exit status of the process, which is ended if it does not end itself."""
        assert self._running is not None
        (process, connection), self._running = self._running, None
        connection.close()
        if killed:
            process.kill()
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _exchange(self, message: bytes, within: float) -> tuple[bool, bytes]:
        """Send a message and return the answer. Raises ``EOFError`` if the other side has ended, and ``OSError``."""
        assert self._running is not None
        connection, deadline = self._running[1], time.monotonic() + within

        def read(count: int) -> bytes:
            content = bytearray()
            while len(content) < count:
                connection.settimeout(max(deadline - time.monotonic(), 0.001))
                if not (chunk := connection.recv(min(count - len(content), 1 << 20))):
                    raise EOFError
                content += chunk
            return bytes(content)

        connection.settimeout(within)
        try:
            connection.sendall(message)
            refused, length = _ANSWER.unpack(read(_ANSWER.size))
            if length > self.longest:
                raise OSError("a longer answer than was asked for")
            return refused, read(length)
        except (BrokenPipeError, ConnectionResetError):
            raise EOFError from None

    def _reason(self, status: int, seconds: float) -> str:
        if status == -signal.SIGPROF:
            return f"it ran for {seconds:g} s"
        if status == _OUT_OF_MEMORY:
            return f"it took more than {self.memory >> 20} MB of memory"
        return f"it ended the process that {self.work} it"


def main(work: str, memory: int, longest: int) -> None:
    """Answer until the other side closes.

    Running out of memory ends the process, so that the next request finds a fresh one.
    """
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed is no answer
    answer_to = _WORK[work](longest)
    _limit(memory)
    while head := requests.read(_REQUEST.size):
        seconds, length = _REQUEST.unpack(head)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            answer = answer_to(requests.read(length))
        except MemoryError:
            os._exit(_OUT_OF_MEMORY)
        if len(answer) > longest:
            answer = f"it writes more than {longest:,} bytes"
        signal.setitimer(signal.ITIMER_PROF, 0)
        refused, answer = isinstance(answer, str), answer.encode() if isinstance(answer, str) else answer
        answers.write(_ANSWER.pack(refused, len(answer)) + answer)
        answers.flush()
    os._exit(0)  # how the threads of libraries end is nobody's concern


def _limit(memory: int) -> None:
    """Let the process take ``memory`` bytes more than it has, and write no file."""
    limits = [(resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)]
    with suppress(OSError, ValueError):  # systems that do not tell what a process has
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits.append((resource.RLIMIT_AS, pages * resource.getpagesize() + memory))
    for limit, value in limits:
        with suppress(OSError, ValueError):  # systems without it, or with a lower one
            resource.setrlimit(limit, (value, value))


LONGEST_REFUSAL = 200
"""characters of a template's message when it refuses"""
_MARKS_OF_ANSWERS = re.compile(r"{%-?\s*(?:end)?generation\s*-?%}")  # tags that transformers adds to Jinja


def _renders(longest: int) -> Callable[[bytes], bytes]:
    """Chat templates. A request and its answer are JSON.

    The answer has the ``text`` of a conversation or the ``names`` that a template reads. Otherwise it has what the
    template said when it ``refused``, or the kind of error with which it ``failed``.
    """
    from jinja2 import Environment, TemplateError, meta
    from transformers.utils.chat_template_utils import render_jinja_template

    def names(chat_template: str) -> list[str]:
        parsed = Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=True).parse(
            _MARKS_OF_ANSWERS.sub("", chat_template)
        )
        return sorted(meta.find_undeclared_variables(parsed))

    def rendered(request: dict[str, Any]) -> dict[str, Any]:
        try:
            if "names_of" in request:
                return {"names": names(request["names_of"])}
            values = request.pop("values")
            (text,), _ = render_jinja_template(**request, add_generation_prompt=True, **values)
            return {"text": str(text)}
        except MemoryError:
            raise
        except Exception as error:  # Jinja and the code that a template calls raise any exception
            if type(error) is TemplateError:  # by the template's own raise_exception
                return {"refused": str(error)[:LONGEST_REFUSAL]}
            return {"failed": type(error).__name__}

    names("")  # loads what parsing needs
    return lambda request: as_json(rendered(from_json(request)))


def _reads(longest: int) -> Callable[[bytes], bytes | str]:
    """Files of rows, which become JSON Lines."""
    return runpy.run_path(str(Path(__file__).with_name("table_files.py")))["reads"](longest)


def as_json(value: dict[str, Any]) -> bytes:
    """Return an object as the bytes of a request or an answer."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def from_json(content: bytes) -> dict[str, Any]:
    """Return the object of a request or an answer."""
    return json.loads(content.decode("utf-8", "surrogatepass"))


_WORK: dict[str, Callable[[int], Callable[[bytes], bytes | str]]] = {"renders": _renders, "reads": _reads}
"""the function that answers a request, or says why not, by the work, made of ``longest``"""

if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
