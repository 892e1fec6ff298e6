"""What holds of every event of the pages, as a browser is told of them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.tools.settled import go
from tests.tools.site import Site
from tests.tools.visitor import Visitor

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module")
def events(site: Site) -> list[dict[str, Any]]:
    """The events of all pages that ask the server, and those that programs call."""
    with Visitor(site.url) as visitor:
        return visitor.events


def test_no_answer_comes_through_the_queue(events: list[dict[str, Any]]) -> None:
    assert events
    assert [event["id"] for event in events if event["queue"]] == []


def test_no_event_of_a_page_is_part_of_the_public_interface(events: list[dict[str, Any]]) -> None:
    of_pages = [event for event in events if event["targets"] or event["trigger_after"] is not None]
    assert of_pages
    assert {event["api_visibility"] for event in of_pages} == {"private"}


@pytest.mark.wide
def test_the_header_mends_itself_where_an_answer_was_lost(page: Page, site: Site) -> None:
    """The page says what it shows, so the answer after the lost one tells the same."""
    go(page, f"{site.url}/theory")
    lost: list[Route] = []

    def lose(route: Route) -> None:
        changes = "worker ready" in route.fetch().text()
        if changes and not lost:
            lost.append(route)
            route.fulfill(status=500, body="{}")
        else:
            route.continue_()

    expect(page.locator(".fsd-worker")).to_contain_text("worker is not running")
    page.route("**/gradio_api/run/**", lose)
    alive = threading.Event()

    def live() -> None:
        while not alive.wait(1):
            site.repository.report_worker(1, "host", "cpu", "idle")

    worker = threading.Thread(target=live)
    worker.start()
    try:
        expect(page.locator(".fsd-worker")).to_contain_text("worker ready")
    finally:
        alive.set()
        worker.join()
    assert lost
