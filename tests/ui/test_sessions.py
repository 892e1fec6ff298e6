"""What the web process keeps of its visitors: all of an open page's state, and next to nothing of the others'."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import update

from dashboard.server.sessions import KEPT
from fsd_core.tracking.database.models import Run, now
from tests.tools.attack.growth import growth
from tests.tools.attack.server import served
from tests.tools.attack.visitor import Visitor
from tests.tools.plausible import add_finished, new_repository

pytestmark = pytest.mark.ui
VISITS = 50
MOST = 4.0  # MB that so many visits may add; `make attack` counts a thousand
ROUNDS = 3  # what is kept of visitors is kept in each of them, what the allocator or a cache takes is taken once


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def experiment(home: Path) -> str:
    """Its runs are some days old, so that no list changes because a minute has gone by."""
    repository = new_repository(home)
    finished = add_finished(repository)
    with repository._database.session() as session:
        session.execute(update(Run).values(created_at=now() - timedelta(days=3)))
    return finished


@pytest.fixture(scope="module")
def server(home: Path, experiment: str) -> Iterator[tuple[str, psutil.Process]]:
    with served(home) as server:
        yield server


@pytest.mark.parametrize("page", ["runs", "compare"])
def test_visitors_leave_next_to_nothing(server: tuple[str, psutil.Process], experiment: str, page: str) -> None:
    url, process = server
    query = {"experiment": experiment} if page == "compare" else {}
    found: list[float] = []
    while len(found) < ROUNDS and (not found or found[-1] >= MOST):
        found.append(growth(url, process, VISITS, 0 if found else VISITS, page, **query)["growth_mb"])
    assert found[-1] < MOST, found


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
