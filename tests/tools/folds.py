"""The tabs of Compare and the folded parts of pages, opened as people do."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.tools.settled import settled


def head(page: Page, title: str) -> Locator:
    """What opens and closes a folded part. Its name ends with that of its arrow."""
    return page.get_by_role("button", name=re.compile(f"^{re.escape(title)} ▼$"))


def open_tab(page: Page, title: str) -> None:
    """Opens a tab of Compare, and waits until it is drawn."""
    page.get_by_role("radio", name=title, exact=True).check()
    settled(page)


def unfold(page: Page, title: str) -> None:
    """Opens a folded part, and waits until it is drawn."""
    head(page, title).click()
    expect(head(page, title)).to_contain_class("open")
    settled(page)
