"""Prompts that arrive at an engine by themselves, at a rate, whether or not earlier ones have been answered."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from itertools import accumulate
from random import Random
from typing import TypeVar

_T = TypeVar("_T")


def poisson_arrivals(count: int, rate: float, seed: int) -> list[float]:
    """Return when each of ``count`` prompts arrives, in seconds from the first: a Poisson process of ``rate`` a second.

    The gaps are independent and exponential with the mean 1 / rate, so prompts come in bunches as those of people do.
    The same seed draws the same gaps, which scale with 1 / rate.
    """
    draw = Random(seed)
    return list(accumulate([0.0, *(draw.expovariate(1.0) / rate for _ in range(count - 1))][:count]))


async def arriving(
    questions: Iterable[tuple[float, _T]], most: int, ask: Callable[[_T, float, bool], Awaitable[None]]
) -> None:
    """Ask each question when it arrives, in seconds from now, ascending. At most ``most`` are open at once.

    ``ask`` is given the question, the seconds since it arrived, and whether it was held back because as many were open
    as may be. The clock is the running loop's. Raises the first error of ``ask``, in a group.
    """
    loop, free = asyncio.get_running_loop(), asyncio.Semaphore(most)
    started, full_until = loop.time(), -math.inf

    async def asked(question: _T, waited: float, held: bool) -> None:
        try:
            await ask(question, waited, held)
        finally:
            free.release()

    async with asyncio.TaskGroup() as group:
        for arrival, question in questions:
            at = started + arrival
            await asyncio.sleep(max(0.0, at - loop.time()))
            was_full = free.locked()
            await free.acquire()
            full_until = loop.time() if was_full else full_until
            group.create_task(asked(question, max(0.0, loop.time() - at), at <= full_until))
