"""The signal that a process gets when its terminal or its session goes away."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType


def handle_hangup(handler: Callable[[int, FrameType | None], object]) -> None:
    """Handle SIGHUP, unless it is ignored, as ``nohup`` has it. Without a handler the process would end at once."""
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, handler)
