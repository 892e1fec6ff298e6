"""One answer for all who ask within some seconds."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dashboard.ui.polled import Polled
from fsd_core.errors import DatabaseUnavailable, FsdError


def test_many_who_ask_at_once_cost_one_question() -> None:
    asked = []

    def slow(page: int) -> int:
        asked.append(page)
        time.sleep(0.1)
        return len(asked)

    polled = Polled(slow, 60.0)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(polled, [1] * 8)) == {1}
    assert (polled(2), polled(1), asked) == (2, 1, [1, 2])


def test_an_answer_is_forgotten_after_its_time_or_a_change() -> None:
    asked: list[None] = []
    polled = Polled(lambda: asked.append(None) or len(asked), 0.05)
    assert polled() == polled() == 1
    time.sleep(0.1)
    assert polled() == 2
    polled.forget()
    assert polled() == 3


def test_an_error_is_raised_each_time_and_not_kept() -> None:
    answers = iter([DatabaseUnavailable("away"), DatabaseUnavailable("away"), "here"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, FsdError):
            raise answer
        return answer

    polled = Polled(ask, 60.0)
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable, match="away"):
            polled()
    assert polled() == "here"
