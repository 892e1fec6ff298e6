"""What many open pages ask for again and again: the database is asked once for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from cachetools import TTLCache

_T = TypeVar("_T")
_MOST = 256
"""answers that are kept at once, each for other arguments"""


class Polled(Generic[_T]):
    """The answers of a function of hashable arguments, each kept for so many seconds.

    Whoever asks while the answer is being found waits for it; an error is nobody's answer, and is raised for each.
    """

    def __init__(self, ask: Callable[..., _T], seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._answers = ask, TTLCache[tuple[Hashable, ...], _T](_MOST, seconds, clock)
        self._lock = threading.Lock()

    def __call__(self, *arguments: Hashable) -> _T:
        with self._lock:
            try:
                return self._answers[arguments]
            except KeyError:
                answer = self._answers[arguments] = self._ask(*arguments)
                return answer

    def forget(self) -> None:
        """After a change that is to be seen at once."""
        with self._lock:
            self._answers.clear()
