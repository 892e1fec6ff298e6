"""What the web process keeps of its visitors: nothing. An open page says itself what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psutil
import pytest
from sqlalchemy import update

from fsd_core.storage.tables import RunRow, now
from tests.tools.plausible import add_finished
from tests.tools.serve import serve_anew
from tests.tools.site import Site, serving
from tests.tools.sizes import PATIENCE, size
from tests.tools.visitor import Visitor
from tests.tools.worker_process import until
from tools.attack.growth import growth

pytestmark = pytest.mark.ui
VISITS = size(15, 50)
MOST = 4.0  # MB that so many visits may add, of which Gradio would keep 0.6 each; `make attack` counts a thousand
ROUNDS = 3  # what is kept of visitors is kept in each of them, what the allocator or a cache takes is taken once


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("home"), serve_anew) as site:
        yield site


@pytest.fixture(scope="module")
def experiment(site: Site) -> str:
    """Its runs are some days old, so that no list changes because a minute has gone by."""
    finished = add_finished(site.repository)
    with site.repository._database.session() as session:
        session.execute(update(RunRow).values(created_at=now() - timedelta(days=3)))
    return finished


@pytest.mark.wide
@pytest.mark.parametrize("page", ["runs", "compare"])
def test_visitors_leave_next_to_nothing(site: Site, experiment: str, page: str) -> None:
    process = psutil.Process(site.pid)
    query = {"experiment": experiment} if page == "compare" else {}
    found: list[float] = []
    while len(found) < ROUNDS and (not found or found[-1] >= MOST):
        found.append(growth(site.url, process, VISITS, 0 if found else VISITS, page, **query)["growth_mb"])
    assert found[-1] < MOST, found


def drawn(sent: list[Any]) -> list[str]:
    """What of the page is drawn anew, beside what the browser is told of its question."""
    return [value for value in sent if isinstance(value, str) and '"shown"' not in value]


def test_an_open_page_is_sent_only_what_differs(site: Site, experiment: str) -> None:
    with Visitor(site.url, "runs") as visitor:
        visitor.open()
        assert drawn(visitor.tick()) == []
        visitor.lose_heartbeat()  # and whoever else has asked meanwhile
        with Visitor(site.url, "runs") as other:
            other.open()
        assert drawn(visitor.tick()) == []
        add_finished(site.repository, "Another")
        until(lambda: drawn(visitor.tick()), "the runs that are new", PATIENCE)
