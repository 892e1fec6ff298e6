"""ZeroGPU of Hugging Face Spaces, by its package ``spaces``: a GPU is lent for one call, which runs in a forked
process.

Outside ZeroGPU these functions do nothing, and ``spaces`` need not be installed.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from fsd_core.errors import PackageMissing
from fsd_core.space import zero_gpu

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
