"""Debian's Chromium, as the tests, the pictures and the measurements start it."""

from __future__ import annotations

import shutil

from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Route

# The shell is Chromium without its window: the same pages for half of the processor's time.
_NAMES = ("chromium-headless-shell", "chromium", "google-chrome")
_OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--process-per-site",
]  # fmt: skip
BROWSER_PATIENCE = 120_000
"""milliseconds in which what must come to a page comes, on a busy machine as well"""


def found() -> str | None:
    """Where it is; ``None`` where there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def launch(playwright: Playwright) -> Browser:
    """A headless one. Playwright raises its own error where there is none."""
    return playwright.chromium.launch(executable_path=found(), args=_OPTIONS, timeout=BROWSER_PATIENCE)


def keep_process(profile: BrowserContext) -> Page:
    """Opens a window that keeps the process in which this browser's windows of the application run.

    Else each window begins a process that compiles and warms up the page's scripts anew, which is a third of its time.
    """

    def empty(route: Route) -> None:
        route.fulfill(body="")

    kept = profile.new_page()
    kept.route("**/*", empty)
    kept.goto("http://127.0.0.1/")
    return kept
