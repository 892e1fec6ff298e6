"""How many CPU threads decode: as many as speed up a round, and no more than there are free processors.

A small model's forward takes milliseconds, and its threads synchronize a hundred times in it. If another process takes
one of the processors, each synchronization waits for it. Beside one busy process on two processors, two threads are
five times slower than one (docs/performance.md). So a pair's rounds are timed once when it is loaded. Before each
prompt the free processors are counted, which takes some microseconds.

Torch's number of threads belongs to the process, and so does this module's state. Call it from the decoding thread.
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

DRAFTED = 5  # tokens in the timed round
ENOUGH = 0.9
"""more threads are used only if they need less than this share of the time"""
_QUIET = 0.25
"""processors in use by other processes, up to which a timing counts as undisturbed"""
WINDOW = 1.0  # least seconds over which other processes' use is averaged
_WARMUP, _COUNTED = 2, 12  # warm-up rounds, which allocate; and the most counted rounds
_BUDGET = 1.5  # seconds of timing in all


@dataclass
class _ThreadChoice:
    """The fastest number of threads for a pair, and whether it was timed undisturbed."""

    threads: int
    undisturbed: bool


class Neighbours:
    """Counts how many of this process's processors other processes use."""

    def __init__(self, look: Callable[[], tuple[float, float, float]] | None = None) -> None:
        """``look``: returns the time, and the processor seconds used so far by all processes and by this one."""
        self._process, self._cpus = psutil.Process(), sorted(os.sched_getaffinity(0))
        self._look = look or self._read_processors
        self._since, self._busy, self._process_busy = self._look()
        self._used = 0.0

    @property
    def processors(self) -> int:
        return len(self._cpus)

    def used(self) -> float:
        """Return the use since the last call if that is long enough ago, otherwise the earlier result."""
        moment, busy, process_busy = self._look()
        if (seconds := moment - self._since) >= WINDOW:
            self._used = max(0.0, (busy - self._busy) - (process_busy - self._process_busy)) / seconds
            self._since, self._busy, self._process_busy = moment, busy, process_busy
        return self._used

    def _read_processors(self) -> tuple[float, float, float]:
        times: Any = psutil.cpu_times(percpu=True)
        busy = sum(
            t.user + t.nice + t.system + t.irq + t.softirq + t.steal for cpu, t in enumerate(times) if cpu in self._cpus
        )
        process_times = self._process.cpu_times()
        return time.monotonic(), busy, process_times.user + process_times.system


_neighbours = Neighbours()
_fixed: int | None = None
_choices: dict[int, _ThreadChoice] = {}  # by id() of the pair's target
_pair: LoadedPair | None = None


def fix(threads: int | None) -> None:
    """Use this many threads from now on, whatever else runs. ``None`` leaves the choice to this module."""
    global _fixed
    _fixed = threads
    if threads is not None:
        torch.set_num_threads(threads)


def adopt(pair: LoadedPair) -> None:
    """Choose threads for the rounds of this pair from now on. A new pair is timed, which takes about a second."""
    global _pair
    _pair = pair
    if _fixed is None and pair.target.device.type == "cpu":
        if id(pair.target) not in _choices:
            _choices.clear()  # drop pairs that are gone or will be timed again
            _choices[id(pair.target)] = _time(pair)
        fit()


def fit() -> None:
    """Use as many of the pair's threads as there are free processors. Call this before a prompt."""
    if _fixed is not None or _pair is None or (choice := _choices.get(id(_pair.target))) is None:
        return
    used = _neighbours.used()
    if not choice.undisturbed and used <= _QUIET:
        choice = _choices[id(_pair.target)] = _time(_pair)
    free = int(_neighbours.processors - used + _QUIET)
    torch.set_num_threads(max(1, min(choice.threads, free)))


def _time(pair: LoadedPair) -> _ThreadChoice:
    """Return the fewest threads that are about as fast as any number. The counts alternate, for equal conditions."""
    used_before, started = _neighbours.used(), time.perf_counter()
    times: dict[int, list[float]] = {count: [] for count in _counts(_neighbours.processors)}
    for repeat in range(_WARMUP + _COUNTED):
        if repeat > _WARMUP and time.perf_counter() - started > _BUDGET:
            break
        for count, seconds in times.items():
            torch.set_num_threads(count)
            seconds.append(_round_seconds(pair))
    medians = {count: median(seconds[_WARMUP:]) for count, seconds in times.items()}
    threads = next(count for count, seconds in medians.items() if seconds * ENOUGH <= min(medians.values()))
    return _ThreadChoice(threads, undisturbed=max(used_before, _neighbours.used()) <= _QUIET)


def _counts(processors: int) -> list[int]:
    """Return 1, 2, 4 and so on, and the number of all processors."""
    return [*(1 << power for power in range(processors.bit_length()) if 1 << power < processors), processors]


def _round_seconds(pair: LoadedPair) -> float:
    """Time the draft's forwards one by one, and one target forward over the drafted tokens."""
    started = time.perf_counter()
    for _ in range(DRAFTED):
        _forward(pair.draft, 1)
    _forward(pair.target, DRAFTED + 1)
    return time.perf_counter() - started


@torch.inference_mode()
def _forward(model: LanguageModel, tokens: int) -> None:
    cache = model.new_cache(tokens + 1)
    model.forward(torch.zeros(1, tokens, dtype=torch.long, device=model.device), cache)
