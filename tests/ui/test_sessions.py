"""What the web process keeps of its visitors: all of an open page's state, and next to nothing of the others'."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dashboard.server.sessions import KEPT
from tests.attack.growth import growth
from tests.attack.server import served
from tests.attack.visitor import Visitor
from tests.ui.plausible import add_finished, new_repository

pytestmark = pytest.mark.ui
VISITS = 50
MOST = 4.0  # MB that so many visits may add; `make attack` counts a thousand


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def experiment(home: Path) -> str:
    return add_finished(new_repository(home))


@pytest.fixture(scope="module")
def server(home: Path, experiment: str) -> Iterator[tuple[str, psutil.Process]]:
    with served(home) as server:
        yield server


@pytest.mark.parametrize("page", ["runs", "compare"])
def test_visitors_leave_next_to_nothing(server: tuple[str, psutil.Process], experiment: str, page: str) -> None:
    url, process = server
    query = {"experiment": experiment} if page == "compare" else {}
    found = growth(url, process, VISITS, VISITS, page, **query)
    assert found["growth_mb"] < MOST, found


def unchanged(sent: list[Any]) -> bool:
    """Whether the server knew what the page shows already, and sent no text."""
    return bool(sent) and not any(isinstance(value, str) for value in sent)


def pass_by(url: str, visitors: int) -> None:
    for _ in range(visitors):
        with Visitor(url, "runs") as other:
            other.tick()


def test_an_open_page_keeps_its_state_among_many_visitors(server: tuple[str, psutil.Process]) -> None:
    url, _ = server
    with Visitor(url, "runs") as visitor:
        visitor.open()
        visitor.tick()
        assert unchanged(visitor.tick())
        pass_by(url, KEPT + 20)
        assert unchanged(visitor.tick())


def test_a_page_that_lost_its_connection_keeps_its_state_for_a_while(server: tuple[str, psutil.Process]) -> None:
    url, _ = server
    with Visitor(url, "runs") as visitor:
        visitor.open()
        visitor.tick()
        visitor.lose_heartbeat()
        pass_by(url, KEPT // 2)
        assert unchanged(visitor.tick())
        pass_by(url, KEPT + 20)
        assert not unchanged(visitor.tick())  # forgotten: it is told everything again
        assert unchanged(visitor.tick())
