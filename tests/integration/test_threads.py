"""Threads are as many as help, and as there are processors that nobody else uses."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import torch

from fsd_core.models import threads
from fsd_core.models.loading import LoadedPair
from tests.tools.threads_kept import threads_kept


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in (("_fixed", None), ("_choices", {}), ("_pair", None)):
        monkeypatch.setattr(threads, name, value)
    with threads_kept():
        yield


def test_a_fixed_number_stays(pair: LoadedPair) -> None:
    threads.fix(3)
    threads.adopt(pair)
    threads.fit()
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(("seconds", "expected"), [((1.0, 0.95, 1.2), 1), ((1.0, 0.6, 0.58), 2), ((1.0, 0.8, 0.6), 4)])
def test_a_pair_is_fed_by_the_fewest_threads_that_are_about_as_fast_as_any_and_timed_once(
    pair: LoadedPair, monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, ...], expected: int
) -> None:
    monkeypatch.setattr(threads._neighbours, "_cpus", list(range(4)))
    monkeypatch.setattr(threads._neighbours, "used", lambda: 0.0)
    timed, takes = [], dict(zip((1, 2, 4), seconds, strict=True))

    def round_seconds(pair: LoadedPair) -> float:
        timed.append(pair)
        return takes[torch.get_num_threads()]

    monkeypatch.setattr(threads, "_round_seconds", round_seconds)
    threads.adopt(pair)
    assert torch.get_num_threads() == expected
    count = len(timed)
    threads.adopt(pair)
    assert len(timed) == count > 0


@pytest.mark.long  # it measures
def test_a_tiny_pair_is_fed_by_one_thread(pair: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads._neighbours, "_cpus", list(range(4)))
    threads.adopt(pair)
    assert torch.get_num_threads() == 1


def test_a_round_takes_time(pair: LoadedPair) -> None:
    assert threads._round_seconds(pair) > 0


@pytest.mark.parametrize(("used", "expected"), [(0.0, 4), (0.2, 4), (0.3, 3), (1.0, 3), (2.9, 1), (9.0, 1)])
def test_threads_make_room_for_others(
    pair: LoadedPair, monkeypatch: pytest.MonkeyPatch, used: float, expected: int
) -> None:
    monkeypatch.setattr(threads._neighbours, "_cpus", list(range(4)))
    monkeypatch.setattr(threads, "_time", lambda _: threads._ThreadChoice(4, undisturbed=True))
    monkeypatch.setattr(threads._neighbours, "used", lambda: used)
    threads.adopt(pair)
    assert torch.get_num_threads() == expected


def test_a_pair_that_was_timed_beside_others_is_timed_again_alone(
    pair: LoadedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([threads._ThreadChoice(1, undisturbed=False), threads._ThreadChoice(2, undisturbed=True)])
    monkeypatch.setattr(threads, "_time", lambda _: next(answers))
    monkeypatch.setattr(threads._neighbours, "_cpus", [0, 1])
    monkeypatch.setattr(threads._neighbours, "used", lambda: 1.0)
    threads.adopt(pair)
    threads.fit()
    assert torch.get_num_threads() == 1
    monkeypatch.setattr(threads._neighbours, "used", lambda: 0.1)
    threads.fit()
    assert torch.get_num_threads() == 2


def test_what_others_use_is_what_all_use_but_for_this_process() -> None:
    looks = iter([(10.0, 100.0, 5.0), (10.9, 101.0, 5.0), (12.0, 103.5, 5.5), (14.0, 105.0, 7.0)])
    neighbours = threads.Neighbours(lambda: next(looks))
    assert neighbours.used() == 0.0  # asked too soon, it says the same
    assert neighbours.used() == pytest.approx((3.5 - 0.5) / 2)
    assert neighbours.used() == 0.0  # this process did it all, and more than the clock of the processors has seen


@pytest.mark.long  # it measures
def test_a_busy_process_is_seen_and_this_one_is_not() -> None:
    neighbours = threads.Neighbours()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        time.sleep(threads.WINDOW + 0.2)
        beside = neighbours.used()
        assert neighbours.used() == beside  # asked too soon, it says the same
        busy.kill()
    assert beside > 0.5
    end = time.monotonic() + threads.WINDOW + 0.2
    while time.monotonic() < end:
        pass
    assert neighbours.used() < beside
