"""ZeroGPU of Hugging Face Spaces: a GPU that is lent for one call, and whom its time is billed to.

ZeroGPU of Hugging Face Spaces, by its package ``spaces``: a GPU is lent for one call, which runs in a forked
process.

Outside ZeroGPU these functions do nothing, and ``spaces`` need not be installed.

Attribution of a job's GPU time to the visitor who requested it.

ZeroGPU identifies the visitor by the context of Gradio's event, which the worker's thread does not have. So this
process stores the context of each request until it expires.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from fsd_core.errors import PackageMissing
from fsd_core.settings import zero_gpu

F = TypeVar("F", bound=Callable[..., Any])


def with_gpu(function: F, seconds: int) -> F:
    """Return the generator function wrapped to hold a GPU for about ``seconds`` while it runs; unchanged outside
    ZeroGPU.

    Call it from the main thread, before the pages are built. Raises ``PackageMissing``.
    """
    if not zero_gpu():
        return function
    spaces = _spaces()
    spaces.disable_gradio_auto_wrap()  # only this function needs a GPU, no page handler does
    return spaces.GPU(duration=seconds)(function)


def begin() -> None:
    """Tell ZeroGPU that the app is ready. Gradio's ``launch`` would do so, but a mounted app never calls it."""
    if zero_gpu():
        _spaces().zero.startup()


def leave_sockets_to_parent(port: int) -> None:
    """Close the sockets of this port in every process forked from now on, so that connections end when we end them."""
    os.register_at_fork(after_in_child=lambda: _close_sockets(port))


def _close_sockets(port: int) -> None:
    for name in os.listdir("/proc/self/fd") if Path("/proc/self/fd").is_dir() else ():
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=int(name)) as connection:
                    address = connection.getsockname()
                    if not (isinstance(address, tuple) and address[1] == port):
                        connection.detach()


def _spaces() -> Any:
    try:
        return import_module("spaces")
    except ImportError:
        raise PackageMissing(
            "This is a ZeroGPU Space, and the package 'spaces' is not installed: use requirements-zerogpu.txt as "
            "requirements.txt (docs/spaces.md)."
        ) from None


GOOD_FOR = 120.0
"""seconds; ZeroGPU's token of a visitor has been seen to expire after 170"""

_lock = threading.Lock()
_contexts: dict[str, tuple[Context, float]] | None = None


def store_contexts() -> None:
    """Start storing contexts: this process executes the jobs."""
    global _contexts
    _contexts = {}


def remember_requester(job_id: str) -> None:
    """Remember the current context as the job's requester."""
    now = time.monotonic()
    with _lock:
        if _contexts is not None:
            for expired in [id for id, (_, since) in _contexts.items() if now - since > GOOD_FOR]:
                del _contexts[expired]
            _contexts[job_id] = copy_context(), now


def context_of(job_id: str) -> Context:
    """Return the context to request a GPU in. It is empty if the visitor's is unknown or too old."""
    with _lock:
        context, since = (_contexts or {}).get(job_id, (None, 0.0))
    if context is None or time.monotonic() - since > GOOD_FOR:
        return Context()
    return context.copy()
