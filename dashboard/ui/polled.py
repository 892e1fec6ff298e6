"""Cache for what many open pages poll: the database is queried once for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from cachetools import TTLCache

_T = TypeVar("_T")
_MOST = 256
"""cached answers, each for other arguments"""
_LONGEST = 2_000
"""characters of arguments: what somebody types without end is asked anew each time, and not kept"""


class Polled(Generic[_T]):
    """The cached answers of a function of hashable arguments, each kept for ``seconds``.

    Callers wait while the answer is being computed. Errors are not cached and are raised for each caller.
    """

    def __init__(self, query: Callable[..., _T], seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._query, self._answers = query, TTLCache[tuple[Hashable, ...], _T](_MOST, seconds, clock)
        self._lock = threading.Lock()

    def __call__(self, *arguments: Hashable) -> _T:
        if len(repr(arguments)) > _LONGEST:
            return self._query(*arguments)
        with self._lock:
            try:
                return self._answers[arguments]
            except KeyError:
                answer = self._answers[arguments] = self._query(*arguments)
                return answer

    def forget(self) -> None:
        """Clear the cache, after a change that must be visible at once."""
        with self._lock:
            self._answers.clear()
