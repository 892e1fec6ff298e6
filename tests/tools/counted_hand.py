"""What a person does on a page, counted and held against docs/pages.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Locator, Page

from tests.tools.worker_process import ROOT


def _goals() -> dict[str, int]:
    """The clicks of each goal, as docs/pages.md has them."""
    _, _, section = (ROOT / "docs" / "pages.md").read_text(encoding="utf-8").partition("## How many clicks")
    return {goal: int(clicks) for goal, clicks in re.findall(r"^\| ([^|]+) \| (\d+) \|", section, re.M)}


GOALS = _goals()


class Hand:
    """What a person does on a page, counted. A choice in a list is two clicks, a field that is filled in is one."""

    def __init__(self, page: Page) -> None:
        self.page, self.count = page, 0

    @contextmanager
    def reaching(self, goal: str) -> Iterator[None]:
        """Within, a goal is reached with as many clicks as docs/pages.md says."""
        self.count = 0
        yield
        assert self.count == GOALS[goal], f"“{goal}” takes {self.count} clicks: docs/pages.md says {GOALS[goal]}"

    def click(self, what: Locator) -> None:
        self.count += 1
        what.click()

    def fill(self, field: Locator, text: str) -> None:
        self.count += 1
        field.fill(text)

    def choose(self, field: Locator, option: str) -> None:
        self.click(field)
        self.click(self.page.get_by_role("option", name=option, exact=True))

    def upload(self, field: Locator, name: str, content: bytes) -> None:
        self.count += 1
        field.set_input_files({"name": name, "mimeType": "application/json", "buffer": content})
