"""What holds of every event of the pages, as a browser is told of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tools.attack.visitor import Visitor
from tests.tools.site import Site

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
