"""Many people on the pages at once: each opens a page, stays on it while its clocks tick, and opens another."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median, quantiles

from tests.tools.visitor import Visitor

STAY = 10.0
"""seconds on a page, on average"""


@dataclass(frozen=True)
class View:
    """A page as an address asks for it."""

    name: str
    page: str
    query: dict[str, str] = field(default_factory=dict)


@dataclass
class Crowd:
    """What so many visits took: seconds from the address to the first table, by page."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, dict[str, float]]:
        """Visits, median and 95th percentile in seconds, by page and of all."""
        everything = {**self.seconds, "all": [s for row in self.seconds.values() for s in row]}
        return {
            name: {
                "visits": len(row),
                "p50": round(median(row), 2),
                "p95": round(quantiles(row, n=20, method="inclusive")[-1], 2),
            }
            for name, row in sorted(everything.items())
            if len(row) > 1
        }


@contextmanager
def crowd(url: str, views: Sequence[View], clients: int, stay: float = STAY) -> Iterator[Crowd]:
    """``clients`` people on the pages for as long as the context lasts; they come one by one, over one stay."""
    found, stop = Crowd(), threading.Event()
    threads = [
        threading.Thread(target=_client, args=(url, views, stay, random.Random(number), found, stop), daemon=True)
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


def _client(
    url: str, views: Sequence[View], stay: float, chance: random.Random, found: Crowd, stop: threading.Event
) -> None:
    stop.wait(chance.uniform(0, stay))
    while not stop.is_set():
        view = chance.choice(views)
        try:
            with Visitor(url, view.page, None, **view.query) as visitor:
                found.seconds[view.name].append(visitor.open())
                _look(visitor, chance.uniform(0.5, 1.5) * stay, stop)
        except Exception as error:  # a thread's error would be nobody's
            found.errors.append(f"{view.name}: {type(error).__name__}: {error}")


def _look(visitor: Visitor, seconds: float, stop: threading.Event) -> None:
    """Stays on the page; each clock ticks at its own pace."""
    end, due = time.monotonic() + seconds, dict[int, float]()
    while not stop.is_set() and (now := time.monotonic()) < end:
        clocks = visitor.clocks
        for clock, pace in clocks.items():
            if now >= due.setdefault(clock, now + pace):
                visitor.tick(clock)
                due[clock] = max(due[clock] + pace, time.monotonic())
        stop.wait(max(0.0, min([end, *(due[clock] for clock in clocks)]) - time.monotonic()))
