"""One answer for all who ask within some seconds."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dashboard.ui.view import Polled
from fsd_core.errors import DatabaseUnavailable, FsdError
from tests.tools.sizes import PATIENCE

ENDLESS = 1e9


def test_many_who_ask_at_once_cost_one_question() -> None:
    asked, asking, all_ask = [], [], threading.Event()

    def slow(page: int) -> int:
        asked.append(page)
        assert all_ask.wait(PATIENCE)
        return len(asked)

    def ask(page: int) -> int:
        asking.append(page)
        if len(asking) == 8:
            all_ask.set()
        return polled(page)

    polled = Polled(slow, ENDLESS)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, [1] * 8)) == {1}
    assert (polled(2), polled(1), asked) == (2, 1, [1, 2])


def test_an_answer_is_forgotten_after_its_time_or_a_change() -> None:
    asked: list[None] = []
    clock = [100.0]
    polled = Polled(lambda: asked.append(None) or len(asked), 5, lambda: clock[0])
    assert polled() == 1
    clock[0] += 4.9
    assert polled() == 1
    clock[0] += 0.2
    assert polled() == 2
    polled.forget()
    assert polled() == 3


def test_what_is_typed_without_end_is_not_kept() -> None:
    polled = Polled(len, ENDLESS)
    assert polled("a" * 1_000_000) == 1_000_000
    assert len(polled._answers) == 0
    for i in range(10_000):
        polled(f"{i} {'a' * 1_900}")
    assert sum(len(repr(key)) for key in polled._answers) < 256 * 2_000


def test_an_error_is_raised_each_time_and_not_kept() -> None:
    answers = iter([DatabaseUnavailable("away"), DatabaseUnavailable("away"), "here"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, FsdError):
            raise answer
        return answer

    polled = Polled(ask, ENDLESS)
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable, match="away"):
            polled()
    assert polled() == "here"
