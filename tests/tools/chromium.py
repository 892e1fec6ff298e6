"""Debian's Chromium, as the tests, the pictures and the measurements start it."""

from __future__ import annotations

import shutil

from playwright.sync_api import Browser, Playwright

# The shell is Chromium without its window: the same pages for half of the processor's time.
_NAMES = ("chromium-headless-shell", "chromium", "google-chrome")
_OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip
BROWSER_PATIENCE = 120_000
"""milliseconds in which what must come to a page comes, on a busy machine as well"""


def found() -> str | None:
    """Where it is; ``None`` where there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def launch(playwright: Playwright, *more: str) -> Browser:
    """A headless one, with these options too. Playwright raises its own error where there is none."""
    return playwright.chromium.launch(executable_path=found(), args=[*_OPTIONS, *more], timeout=BROWSER_PATIENCE)
