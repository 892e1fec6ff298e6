"""Rendering of chat templates in a process of its own (:mod:`.template_child`), with bounds that the kernel enforces.

One such process serves all calls of this one. It is started by the first call, and again after it was ended.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from threading import Lock
from typing import Any

from fsd_core.models.template_child import ANSWER, OUT_OF_MEMORY, REQUEST

TEMPLATE_MEMORY = 512 << 20
"""bytes beside those of the interpreter and its libraries"""
LONGEST_RENDERED = 64 << 20
"""bytes"""
_LONGEST_WAIT = 120.0
"""seconds beyond those of the call until an answer must have come: it is started on a busy machine, too"""
_CHILD = Path(__file__).with_name("template_child.py")
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR")
"""variables that an interpreter needs to find its packages; no secrets"""
_LEAN = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}


class TemplateEnded(Exception):
    """The process was ended or broke off. The message says why, in a few words."""


class _Renderer:
    def __init__(self) -> None:
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

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Return the answer to a request. Raises ``TemplateEnded``."""
        content = json.dumps(request, ensure_ascii=False).encode("utf-8", "surrogatepass")
        with self._lock:
            self._running = self._running or _start()
            try:
                answer = _exchange(self._running[1], REQUEST.pack(seconds, len(content)) + content, seconds)
            except BaseException as error:
                status = self._end(killed=not isinstance(error, EOFError))
                if isinstance(error, EOFError):
                    raise TemplateEnded(_reason(status, seconds)) from None
                if isinstance(error, OSError):
                    raise TemplateEnded(f"it was not done after {seconds + _LONGEST_WAIT:g} s") from None
                raise
        return json.loads(answer.decode("utf-8", "surrogatepass"))

    def end(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            if self._running is not None:
                self._end(killed=True)

    def _end(self, *, killed: bool) -> int:
        """Return the exit status of the process, which is ended if it does not end itself."""
        assert self._running is not None
        (process, connection), self._running = self._running, None
        connection.close()
        if killed:
            process.kill()
        try:
            return process.wait(_LONGEST_WAIT)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _start() -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", str(_CHILD), str(TEMPLATE_MEMORY), str(LONGEST_RENDERED)],
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | _LEAN,
            stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    return process, ours


def _exchange(connection: socket.socket, message: bytes, seconds: float) -> bytes:
    """Send a message and return the answer. Raises ``EOFError`` if the other side has ended, and ``OSError``."""
    deadline = time.monotonic() + seconds + _LONGEST_WAIT

    def read(count: int) -> bytes:
        content = bytearray()
        while len(content) < count:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            if not (chunk := connection.recv(min(count - len(content), 1 << 20))):
                raise EOFError
            content += chunk
        return bytes(content)

    connection.settimeout(seconds + _LONGEST_WAIT)
    try:
        connection.sendall(message)
        (length,) = ANSWER.unpack(read(ANSWER.size))
        if length > LONGEST_RENDERED:
            raise OSError("a longer answer than was asked for")
        return read(length)
    except (BrokenPipeError, ConnectionResetError):
        raise EOFError from None


def _reason(status: int, seconds: float) -> str:
    if status == -signal.SIGPROF:
        return f"it ran for {seconds:g} s"
    if status == OUT_OF_MEMORY:
        return f"it took more than {TEMPLATE_MEMORY >> 20} MB of memory"
    return "it ended the process that renders it"


_renderer = _Renderer()
atexit.register(_renderer.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renderer.forget)


def ask_renderer(request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return what the process answers within ``seconds`` of a processor, see :mod:`.template_child`.

    Raises ``TemplateEnded`` if the request takes more time or memory, or breaks the process.
    """
    return _renderer.ask(request, seconds)
