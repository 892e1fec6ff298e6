"""Bounded log messages, because an error may quote the whole request that caused it."""

from __future__ import annotations

import sys
from typing import Any, TextIO, cast

LONGEST_LOG_MESSAGE = 16_000  # characters written at once; a traceback is shorter, a quoted request may be longer


class _Bounded:
    """A stream that drops the middle of texts that are too long."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if (left_out := len(text) - LONGEST_LOG_MESSAGE) > 0:
            half = LONGEST_LOG_MESSAGE // 2
            self._stream.write(f"{text[:half]} … ({left_out:,} characters left out) … {text[-half:]}")
        else:
            self._stream.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def bound_log_lines() -> None:
    """Shorten long lines on the process's standard error. Call it before logging is configured."""
    sys.stderr = cast(TextIO, _Bounded(sys.stderr))
