"""Prompts that arrive at a rate, on a clock that jumps to the next moment at which something happens."""

from __future__ import annotations

import asyncio
import itertools
import selectors
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from math import exp, sqrt
from statistics import fmean
from typing import Any

import pytest

from fsd_core.engines.client import arriving, poisson_arrivals


class Jumping(selectors.DefaultSelector):
    """Waits for nothing: what would have been waited has passed."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end on a clock that jumps."""

    def jumping() -> None:
        clock = Jumping()
        loop = asyncio.SelectorEventLoop(clock)
        loop.time = lambda: clock.now
        loop._clock_resolution = 1e-12  # pyright: ignore[reportAttributeAccessIssue]
        try:
            loop.run_until_complete(work)
        finally:
            loop.close()

    with ThreadPoolExecutor(1) as pool:  # this thread may have a loop of its own, as that of a browser
        pool.submit(jumping).result()


class Engine:
    """Takes so long for each prompt, and notes when each was asked, and how many were open."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.open, self.most = seconds, 0, 0
        self.asked: list[tuple[str, float, float, bool]] = []

    async def ask(self, prompt: str, waited: float, held: bool) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        self.asked.append((prompt, asyncio.get_running_loop().time(), waited, held))
        await asyncio.sleep(self.seconds)
        self.open -= 1


def test_arrivals_are_poisson_and_the_seed_s() -> None:
    arrivals = poisson_arrivals(4001, 8.0, 3)
    gaps = [later - earlier for earlier, later in itertools.pairwise(arrivals)]
    assert arrivals[0] == 0
    assert fmean(gaps) == pytest.approx(1 / 8, rel=4 / sqrt(4000))  # four standard errors
    for times in (0.5, 1.0, 2.0):  # exponential: the share of longer gaps is exp(-times)
        share = fmean(gap > times / 8 for gap in gaps)
        assert share == pytest.approx(exp(-times), abs=4 * sqrt(exp(-times) / 4000))
    assert fmean(a * b for a, b in itertools.pairwise(gaps)) == pytest.approx(1 / 64, rel=0.15)  # independent
    assert poisson_arrivals(4001, 8.0, 3) == arrivals != poisson_arrivals(4001, 8.0, 4)
    twice = poisson_arrivals(4001, 16.0, 3)
    assert twice == pytest.approx([at / 2 for at in arrivals])  # the same bunches, faster
    assert poisson_arrivals(0, 2.0, 1) == []
    assert poisson_arrivals(1, 2.0, 1) == [0.0]


def test_each_prompt_is_asked_when_it_arrives_whatever_is_open() -> None:
    engine = Engine(10.0)
    run(arriving(zip((0.0, 0.5, 0.5, 2.0), "abcd", strict=True), 8, engine.ask))
    assert [(prompt, at, held) for prompt, at, _, held in engine.asked] == [
        ("a", 0.0, False), ("b", 0.5, False), ("c", 0.5, False), ("d", 2.0, False)
    ]  # fmt: skip
    assert [waited for *_, waited, _ in engine.asked] == pytest.approx([0.0] * 4, abs=1e-9)
    assert engine.most == 4


def test_at_most_so_many_are_open_and_who_is_held_back_counts_from_the_arrival() -> None:
    engine = Engine(3.0)
    run(arriving(zip((0.0, 1.0, 2.0, 2.5, 20.0), "abcde", strict=True), 2, engine.ask))
    assert engine.most == 2
    prompts, times, waited, held = zip(*engine.asked, strict=True)
    assert prompts == tuple("abcde")
    assert times == pytest.approx((0.0, 1.0, 3.0, 4.0, 20.0))  # c when a ends, d when b does, and e as it arrives
    assert waited == pytest.approx((0.0, 0.0, 1.0, 1.5, 0.0))
    assert held == (False, False, True, True, False)


def test_an_engine_that_fails_ends_what_is_open() -> None:
    async def broken(prompt: str, *_: object) -> None:
        await asyncio.sleep(1.0)
        raise ConnectionError(prompt)

    with pytest.raises(ExceptionGroup) as ended:
        run(arriving(zip((0.0, 50.0), "ab", strict=True), 2, broken))
    assert [str(error) for error in ended.value.exceptions] == ["a"]
