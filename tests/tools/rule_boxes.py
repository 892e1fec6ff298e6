"""The boxes in which the rules of an experiment are ticked: each has what the rule costs and does behind its name."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page


def rule_box(page: Page, title: str) -> Locator:
    """The box of the rule with this title, folded away or not."""
    label = re.compile(rf"^\s*{re.escape(title)}\s+(Lossless|Lossy)\. ")
    return page.locator("#rules label", has_text=label).get_by_role("checkbox", include_hidden=True)
