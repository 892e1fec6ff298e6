"""How many CPU threads decode: as many as make a round faster, and no more than the processors that are free.

A forward of a small model is over in milliseconds, and its threads meet a hundred times in it. Where another process
takes one of the processors, each meeting waits for it: two threads beside one busy process on two processors are five
times slower than one thread (docs/performance.md). So a pair's rounds are timed once when it is loaded, and before each
prompt the processors are counted that others leave free, which takes some microseconds.

Torch's number of threads belongs to the process, and so does what is kept here. Call it from the thread that decodes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import psutil
import torch

from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import LoadedPair

DRAFTED = 5  # tokens of the round that is timed
ENOUGH = 0.9
"""more threads are taken only if they need less than this share of the time"""
_QUIET = 0.25
"""processors in use by others at which a timing counts as undisturbed"""
WINDOW = 1.0  # seconds over which the use by others is averaged, at least
_COLD, _TURNS = 2, 12  # rounds that do not count, since they allocate; and those that do, at most
_BUDGET = 1.5  # seconds of timing in all


@dataclass
class _Chosen:
    """The fastest number of threads for a pair, and whether it was timed undisturbed."""

    threads: int
    undisturbed: bool


class Neighbours:
    """How many of this process's processors others use."""

    def __init__(self, look: Callable[[], tuple[float, float, float]] | None = None) -> None:
        """``look``: the moment; seconds that the processors have been in use until then, by all and by this process."""
        self._process, self._cpus = psutil.Process(), sorted(os.sched_getaffinity(0))
        self._look = look or self._of_the_machine
        self._since, self._busy, self._own = self._look()
        self._used = 0.0

    @property
    def processors(self) -> int:
        return len(self._cpus)

    def used(self) -> float:
        """Since it was last asked, if that is long enough ago; the earlier answer otherwise."""
        moment, busy, own = self._look()
        if (seconds := moment - self._since) >= WINDOW:
            self._used = max(0.0, (busy - self._busy) - (own - self._own)) / seconds
            self._since, self._busy, self._own = moment, busy, own
        return self._used

    def _of_the_machine(self) -> tuple[float, float, float]:
        times: Any = psutil.cpu_times(percpu=True)
        busy = sum(
            t.user + t.nice + t.system + t.irq + t.softirq + t.steal for cpu, t in enumerate(times) if cpu in self._cpus
        )
        own = self._process.cpu_times()
        return time.monotonic(), busy, own.user + own.system


_neighbours = Neighbours()
_fixed: int | None = None
_chosen: dict[int, _Chosen] = {}  # by the identity of the pair's target
_pair: LoadedPair | None = None


def fix(threads: int | None) -> None:
    """From now on so many threads, whatever goes on beside; ``None`` leaves the choice to this module."""
    global _fixed
    _fixed = threads
    if threads is not None:
        torch.set_num_threads(threads)


def adopt(pair: LoadedPair) -> None:
    """Chooses for the rounds of this pair from now on; a pair that is new here is timed, which takes about a second."""
    global _pair
    _pair = pair
    if _fixed is None and pair.target.device.type == "cpu":
        if id(pair.target) not in _chosen:
            _chosen.clear()  # of pairs that are gone, or will be timed again
            _chosen[id(pair.target)] = _time(pair)
        fit()


def fit() -> None:
    """Takes as many of the pair's threads as there are free processors. For the moment before a prompt."""
    if _fixed is not None or _pair is None or (chosen := _chosen.get(id(_pair.target))) is None:
        return
    used = _neighbours.used()
    if not chosen.undisturbed and used <= _QUIET:
        chosen = _chosen[id(_pair.target)] = _time(_pair)
    free = int(_neighbours.processors - used + _QUIET)
    torch.set_num_threads(max(1, min(chosen.threads, free)))


def _time(pair: LoadedPair) -> _Chosen:
    """The fewest threads that are about as fast as any number of them. They take turns, so that all see the same."""
    before, begun = _neighbours.used(), time.perf_counter()
    times: dict[int, list[float]] = {count: [] for count in _counts(_neighbours.processors)}
    for turn in range(_COLD + _TURNS):
        if turn > _COLD and time.perf_counter() - begun > _BUDGET:
            break
        for count, seconds in times.items():
            torch.set_num_threads(count)
            seconds.append(_round_seconds(pair))
    usual = {count: median(seconds[_COLD:]) for count, seconds in times.items()}
    threads = next(count for count, seconds in usual.items() if seconds * ENOUGH <= min(usual.values()))
    return _Chosen(threads, undisturbed=max(before, _neighbours.used()) <= _QUIET)


def _counts(processors: int) -> list[int]:
    """1, 2, 4 and so on, and all."""
    return [*(1 << power for power in range(processors.bit_length()) if 1 << power < processors), processors]


def _round_seconds(pair: LoadedPair) -> float:
    """Of the draft's forwards one by one, and one of the target over what they drafted."""
    begun = time.perf_counter()
    for _ in range(DRAFTED):
        _forward(pair.draft, 1)
    _forward(pair.target, DRAFTED + 1)
    return time.perf_counter() - begun


@torch.inference_mode()
def _forward(model: LanguageModel, tokens: int) -> None:
    cache = model.new_cache(tokens + 1)
    model.forward(torch.zeros(1, tokens, dtype=torch.long, device=model.device), cache)
