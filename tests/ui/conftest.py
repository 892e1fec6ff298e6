"""A real browser on the real pages, over a real database that the tests fill; no worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect, sync_playwright

from tests.tools.chromium import BROWSER_PATIENCE, found, launch
from tests.tools.settled import typing_as_people_do, watch
from tests.tools.site import Site, serving

expect.set_options(timeout=BROWSER_PATIENCE)
# The windows of a profile on one site share a process, and a window that stays keeps it: what was compiled for one page
# is there for the next. (A port makes no other site.) Nor is code optimised, which a visit is too short to repay.
_SHARED = ("--process-per-site", "--js-flags=--no-opt")
_STAYS = "http://127.0.0.1/stays"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The application in a process of its own, over an empty database that the module's tests share."""
    with serving(tmp_path_factory.mktemp("home")) as site:
        yield site


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium; without one the tests are skipped, but in CI they fail."""
    if found() is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("needs Chromium")
    with sync_playwright() as playwright, typing_as_people_do():
        browser = launch(playwright, *_SHARED)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def profile(browser: Browser) -> Iterator[BrowserContext]:
    """A person's browser for the whole session: what the pages are made of is fetched and compiled once."""
    with closing(_profile(browser)) as profile:
        yield profile


@pytest.fixture(scope="session")
def other_profile(browser: Browser) -> Iterator[BrowserContext]:
    """Another person's browser."""
    with closing(_profile(browser)) as profile:
        yield profile


@pytest.fixture
def page(profile: BrowserContext) -> Iterator[Page]:
    """A fresh wide window that remembers nothing; a script's error or dialog, or a request to anywhere else, fails the
    test."""
    page = profile.new_page()
    problems = problems_of(page)
    yield page
    forget(profile)
    assert not problems, problems


@pytest.fixture
def fresh(other_profile: BrowserContext) -> Iterator[Page]:
    """A window of a browser in which nobody is signed in."""
    yield other_profile.new_page()
    forget(other_profile)


def problems_of(page: Page) -> list[str]:
    """A list to which each error or dialog of a script, and each request to anywhere else, is added."""
    problems: list[str] = []

    def ran(dialog: Dialog) -> None:
        problems.append(f"a script said {dialog.message}")
        dialog.dismiss()

    page.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    page.on("console", lambda m: problems.append(m.text) if "Content Security Policy" in m.text else None)
    page.on("dialog", ran)
    page.on("request", lambda r: problems.append(f"fetched {r.url}") if _elsewhere(r.url) else None)
    return problems


def forget(profile: BrowserContext) -> None:
    """Closes all windows but the one that stays; what the pages, or the tests, had the browser remember is gone."""
    for opened in profile.pages:
        if opened.url == _STAYS:
            continue
        opened.unroute_all(behavior="ignoreErrors")
        if opened.url.startswith("http"):
            opened.evaluate("localStorage.clear()")
        opened.close()
    profile.clear_cookies()
    profile.clear_permissions()


def _profile(browser: Browser) -> BrowserContext:
    profile = browser.new_context(viewport={"width": 1440, "height": 1000})
    profile.set_default_timeout(BROWSER_PATIENCE)
    watch(profile)
    stays = profile.new_page()
    stays.route(_STAYS, lambda route: route.fulfill(body="", content_type="text/html"))
    stays.goto(_STAYS)
    return profile


def _elsewhere(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1:", "data:", "blob:"))
