"""What the web process keeps of its visitors: all of an open page's state, and next to nothing of the others'."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import psutil
import pytest
from sqlalchemy import update

from dashboard.server import sessions
from fsd_core.storage.database.tables import RunRow, now
from tests.tools.attack.growth import growth
from tests.tools.attack.visitor import Visitor
from tests.tools.plausible import add_finished
from tests.tools.serve import serve_anew
from tests.tools.site import Site, serving
from tests.tools.sizes import size

pytestmark = pytest.mark.ui
VISITS = size(15, 50)
MOST = 4.0  # MB that so many visits may add, of which Gradio would keep 0.6 each; `make attack` counts a thousand
KEPT = 20  # sessions whose page is gone, of which the application keeps a hundred
ROUNDS = 3  # what is kept of visitors is kept in each of them, what the allocator or a cache takes is taken once


def serve_few(listening: socket.socket, orders: Connection) -> None:
    """As usual, and remembers fewer of those who have left."""
    sessions.MOST_CLOSED_SESSIONS = KEPT
    serve_anew(listening, orders)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("home"), serve_few) as site:
        yield site


@pytest.fixture(scope="module")
def experiment(site: Site) -> str:
    """Its runs are some days old, so that no list changes because a minute has gone by."""
    finished = add_finished(site.repository)
    with site.repository._database.session() as session:
        session.execute(update(RunRow).values(created_at=now() - timedelta(days=3)))
    return finished


@pytest.mark.parametrize("page", ["runs", "compare"])
def test_visitors_leave_next_to_nothing(site: Site, experiment: str, page: str) -> None:
    process = psutil.Process(site.pid)
    query = {"experiment": experiment} if page == "compare" else {}
    found: list[float] = []
    while len(found) < ROUNDS and (not found or found[-1] >= MOST):
        found.append(growth(site.url, process, VISITS, 0 if found else VISITS, page, **query)["growth_mb"])
    assert found[-1] < MOST, found


def unchanged(sent: list[Any]) -> bool:
    """Whether the server knew what the page shows already, and sent no text."""
    return bool(sent) and not any(isinstance(value, str) for value in sent)


def pass_by(url: str, visitors: int) -> None:
    for _ in range(visitors):
        with Visitor(url, "runs") as other:
            other.tick()


def test_an_open_page_keeps_its_state_among_many_visitors(site: Site, experiment: str) -> None:
    with Visitor(site.url, "runs") as visitor:
        visitor.open()
        visitor.tick()
        assert unchanged(visitor.tick())
        pass_by(site.url, KEPT + 5)
        assert unchanged(visitor.tick())


def test_a_page_that_lost_its_connection_keeps_its_state_for_a_while(site: Site, experiment: str) -> None:
    with Visitor(site.url, "runs") as visitor:
        visitor.open()
        visitor.tick()
        visitor.lose_heartbeat()
        pass_by(site.url, KEPT // 2)
        assert unchanged(visitor.tick())
        pass_by(site.url, KEPT + 5)
        assert not unchanged(visitor.tick())  # forgotten: it is told everything again
        assert unchanged(visitor.tick())
