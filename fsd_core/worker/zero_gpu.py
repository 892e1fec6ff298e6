"""ZeroGPU of Hugging Face Spaces, by its package ``spaces``: a GPU is lent for a call, which runs in a forked process.

Outside of ZeroGPU nothing here does anything, and ``spaces`` need not be installed.
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


def lent(function: F, seconds: int) -> F:
    """The generator function as one that has a GPU while it runs, for about so many seconds; itself elsewhere.

    Call it from the main thread, before the pages are built. Raises ``PackageMissing``.
    """
    if not zero_gpu():
        return function
    spaces = _spaces()
    spaces.disable_gradio_auto_wrap()  # one function needs a GPU, and no handler of a page
    return spaces.GPU(duration=seconds)(function)


def begin() -> None:
    """Tells ZeroGPU that the app is ready, as Gradio's ``launch`` would, which an app that is mounted never calls."""
    if zero_gpu():
        _spaces().zero.startup()


def leave_sockets_to_parent(port: int) -> None:
    """From now on a forked process has none of the sockets of this port: connections end when we end them."""
    os.register_at_fork(after_in_child=lambda: _close_sockets(port))


def _close_sockets(port: int) -> None:
    for name in os.listdir("/proc/self/fd") if Path("/proc/self/fd").is_dir() else ():
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=int(name)) as found:
                    own = found.getsockname()
                    if not (isinstance(own, tuple) and own[1] == port):
                        found.detach()


def _spaces() -> Any:
    try:
        return import_module("spaces")
    except ImportError:
        raise PackageMissing(
            "This is a ZeroGPU Space, and the package 'spaces' is not installed: use requirements-zerogpu.txt as "
            "requirements.txt (docs/spaces.md)."
        ) from None
