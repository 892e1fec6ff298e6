"""The head of the pages: where one is, and how the worker is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import pytest
from sqlalchemy import update

from dashboard.playground.job_panels import worker_notice
from dashboard.ui.page import Page, absence_notice, navigation, worker_status
from dashboard.web import PAGES
from fsd_core.errors import InvalidSetting
from fsd_core.settings import Settings
from fsd_core.storage.opening import Database, open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import WorkerRow
from tests.tools.tracking_examples import playground_job


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    upgrade(database_url)
    database = open_database(database_url)
    yield database
    database.close()


def test_the_worker_is_told_as_it_is(database: Database) -> None:
    repository = Repository(database)
    assert "worker is not running" in worker_status(repository, "worker")
    repository.report_worker(1, "host", "cpu", "idle")
    assert "<b>worker ready</b><span>cpu</span>" in worker_status(repository, "worker")
    repository.enqueue(playground_job())
    repository.report_worker(1, "host", "cuda", "SD <b>: prompt 3 of 50")
    assert "SD &lt;b&gt;: prompt 3 of 50 · cuda · 1 waiting" in worker_status(repository, "worker")

    with database.session() as session:
        session.execute(update(WorkerRow).values(heartbeat_at=datetime.now(UTC) - timedelta(seconds=30)))
    assert "worker is not running" in worker_status(repository, "worker")


def test_what_is_missing_is_named_as_the_installation_has_it(database: Database) -> None:
    repository = Repository(database)
    assert 'title="Start it with: python -m fsd_core worker."' in worker_status(repository, "worker")
    for told in (
        worker_status(repository, "in-process"),
        absence_notice(None, "in-process", waiting=True),
        worker_notice(None, "in-process", "queued"),
    ):
        plain = unescape(told)
        assert "app's computing thread is not running" in plain
        assert "The app begins it anew every few seconds. If this stays, the app's log says why" in plain
        assert "worker" not in plain.replace("fsd-worker", "")
    assert "continue where they stopped" in absence_notice(None, "in-process", waiting=True)
    repository.report_worker(1, "host", "cpu", "idle")
    assert absence_notice(repository.worker(), "in-process") == ""


def test_a_database_that_is_damaged_is_told_and_does_not_raise(database: Database, home: Path) -> None:
    (home / "fsd.db").write_bytes(b"not a database" * 999)
    assert "database unavailable" in worker_status(Repository(database), "worker")


@pytest.mark.parametrize("page", PAGES)
def test_the_page_that_is_open_is_marked(page: Page) -> None:
    assert ('class="fsd-brand" href="./start" aria-current' in navigation(PAGES, page)) == (page.title == "Start")
    assert (f'aria-current="page">{page.title}<' in navigation(PAGES, page)) == page.in_bar
    assert navigation(PAGES, page).count("aria-current") == 1


def test_hosts_are_the_machines_own_and_those_that_are_named() -> None:
    own = ["localhost", "127.0.0.1", "[::1]"]
    assert Settings(host="0.0.0.0").hosts == own
    assert Settings(host="10.0.0.7", allowed_hosts="lab.example.org, *.lan").hosts == [
        *own, "10.0.0.7", "lab.example.org", "*.lan",
    ]  # fmt: skip
    assert Settings(allowed_hosts="*").hosts == [*own, "*"]


@pytest.mark.parametrize("names", ["a*b", "http://x", "a b"])
def test_host_names_that_are_none_are_refused(names: str) -> None:
    with pytest.raises((InvalidSetting, ValueError), match="host names"):
        Settings(allowed_hosts=names)
