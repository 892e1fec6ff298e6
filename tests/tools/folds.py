"""The folded parts of Compare, opened as people do, or by the address."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.tools.settled import settled

EVERY_FOLD = "&open=all-figures,matched-points,further,settings,prompts,report"
"""opens all of them, in an address"""


def unfold(page: Page, title: str) -> None:
    """Opens a folded part, and waits until it is drawn."""
    head = page.get_by_role("button", name=title, exact=True)
    head.click()
    expect(head).to_contain_class("open")
    settled(page)
