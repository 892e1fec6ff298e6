"""What the web process lets in and gives out, asked without a browser."""

from __future__ import annotations

import re
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Page, expect

from tests.tools.site import Site
from tests.tools.sizes import PATIENCE
from tests.tools.worker_process import ROOT
from tools.first_sight import MOST_WORDS, first_sight

pytestmark = pytest.mark.ui


def status(url: str, **headers: str) -> int:
    try:
        with urlopen(Request(url, headers=headers), timeout=PATIENCE) as answer:
            return answer.status
    except HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    ("host", "expected"), [("localhost", 200), ("127.0.0.1:7860", 200), ("[::1]:80", 200), ("evil.example", 400)]
)
def test_only_known_host_names_are_answered(site: Site, host: str, expected: int) -> None:
    assert status(site.url, Host=host) == expected


def test_pages_may_load_nothing_from_elsewhere(site: Site) -> None:
    with urlopen(site.url, timeout=PATIENCE) as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'self'" in policy
    assert "http" not in policy


def test_files_named_by_their_contents_are_kept_by_the_browser(site: Site) -> None:
    with urlopen(site.url, timeout=PATIENCE) as answer:
        assert answer.headers["Cache-Control"] is None
        named = re.search(r"/assets/index-[^\"']+\.js", answer.read().decode())
    assert named is not None
    for path, kept in (
        (named[0], True),
        ("/theme.css?v=1", True),
        ("/theme.css", False),
        ("/assets/no-such.js", False),
    ):
        request = Request(site.url + path)
        try:
            headers = urlopen(request, timeout=PATIENCE).headers
        except HTTPError as error:
            headers = error.headers
        assert ("immutable" in (headers["Cache-Control"] or "")) == kept, path


def test_neither_the_database_nor_the_program_is_served(site: Site) -> None:
    for path in (site.home / "fsd.db", ROOT / "app.py", ROOT / "pyproject.toml"):
        assert path.exists()
        assert status(f"{site.url}/gradio_api/file={path}") == 404


def test_the_icon_is_ours(site: Site) -> None:
    with urlopen(f"{site.url}/favicon.ico", timeout=PATIENCE) as answer:
        assert b"#0f6b65" in answer.read()


@pytest.mark.wide
def test_an_address_that_leads_nowhere_is_a_page_with_a_way_back(page: Page, site: Site) -> None:
    answer = page.goto(f"{site.url}/nosuch")
    assert answer is not None
    assert answer.status == 404
    expect(page.locator("h1")).to_have_text("There is nothing at this address.")
    page.get_by_role("link", name="To the first page").click()
    expect(page).to_have_url(f"{site.url}/")
    page.get_by_role("link", name="FSD Lab").click()
    expect(page).to_have_url(f"{site.url}/start")
    expect(page.get_by_role("img", name="as fast as SD and solves as many")).to_be_in_viewport()
    assert len(first_sight(page).words) <= MOST_WORDS
    page.get_by_role("link", name="Find the setting").click()
    expect(page).to_have_url(f"{site.url}/experiments")
    page.go_back()
    page.get_by_role("link", name="reference").click()
    page.get_by_role("link", name="variables").click()
    expect(page).to_have_url(f"{site.url}/reference#variables")
    expect(page.get_by_role("heading", name="Variables")).to_be_in_viewport()
    page.go_back()
    page.go_back()
    page.get_by_role("link", name="Try a prompt").click()
    expect(page).to_have_url(f"{site.url}/")
