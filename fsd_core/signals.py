"""Signals that end a process: those of a terminal or session that goes away, and of whoever stops it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def handle_hangup(handler: Callable[[int, FrameType | None], object]) -> None:
    """Handle SIGHUP, unless it is ignored, as ``nohup`` has it. Without a handler the process would end at once."""
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, handler)


@contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP in the block like a keyboard interrupt, so that the command says how to continue."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set signal handlers
        yield
        return
    received: list[int] = []

    def end(number: int, _: object) -> None:
        received.append(number)
        if received[0] == number:  # one of each, as systemd may send them, is one request
            raise KeyboardInterrupt

    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, end)
    handle_hangup(end)
    try:
        yield
    except SystemExit:
        if received:
            sys.exit(128 + received[0])
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
