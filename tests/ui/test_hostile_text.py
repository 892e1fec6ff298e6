"""Text that is a program stays text: it is planted in every column that holds text, then every page is opened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from dashboard.web import PAGES
from tests.tools.chromium import BROWSER_PATIENCE
from tests.tools.planted import DOORS, NAME, PLANTED, SCRIPT, plant
from tests.tools.settled import settled, watch
from tests.tools.site import Site, serving
from tests.tools.sizes import some
from tests.ui.test_playground import remembered_name
from tests.ui.test_sign_in import status

pytestmark = pytest.mark.ui

VISITED = (
    "", "runs?run={run}", "settings?setting={setting}", "review?proposal={proposal}", "people", "playground",
)  # fmt: skip
"""of the pages that no journey visits, and of those with the most words"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, dict[str, str]]]:
    """The application behind a proxy that names somebody of a hostile name."""
    named = {"FSD_ACCESS": "proxy", "FSD_PROXY_ROLES": "*=admin"}
    with serving(tmp_path_factory.mktemp("home"), **named) as site:
        yield site, plant(site.repository)


@pytest.fixture(scope="module")
def named(browser: Browser, hostile: tuple[Site, dict[str, str]]) -> Iterator[BrowserContext]:
    """The browser of somebody of a hostile name, who has asked the Playground for something."""
    with closing(browser.new_context(extra_http_headers={"X-Forwarded-User": NAME})) as context:
        context.set_default_timeout(BROWSER_PATIENCE)
        name = remembered_name(context.request.get(hostile[0].url).text())
        context.add_init_script(f"localStorage.setItem({name!r}, {json.dumps({'job': hostile[1]['job']})!r})")
        watch(context)
        yield context


@pytest.fixture
def watched(named: BrowserContext) -> Iterator[Page]:
    """A window in which whatever runs, or is fetched from elsewhere, fails the test."""
    page = named.new_page()
    problems: list[str] = []
    page.on("dialog", lambda dialog: (problems.append(f"ran: {dialog.message}"), dialog.dismiss()))
    page.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    page.on("console", lambda m: problems.append(m.text) if "Content Security Policy" in m.text else None)
    page.on("request", lambda r: problems.append(f"fetched {r.url}") if r.url.endswith("/x") else None)
    yield page
    page.close()
    assert not problems, problems


def test_every_page_is_among_the_doors() -> None:
    assert {page.path for page in PAGES} <= set(DOORS) | {door.partition("?")[0] for door in DOORS}


@pytest.mark.parametrize("door", some(DOORS, *VISITED))
def test_no_page_runs_what_is_planted(watched: Page, hostile: tuple[Site, dict[str, str]], door: str) -> None:
    site, ids = hostile
    path, mark, query = door.partition("?")
    watched.goto(f"{site.url}/{path}{mark}{query.format(**ids) if '%' not in query else query}")
    if DOORS[door]:
        expect(watched.locator(".fsd-person form")).to_contain_text(
            SCRIPT.partition("/")[0]
        )  # a slash is for names of programs
    settled(watched)  # with what the page fetches after its head
    assert watched.locator(PLANTED).count() == 0
    if path in ("experiments", "compare", "runs", "settings", "review") and "%" not in query:
        shown = watched.locator("main, .gradio-container").first  # who is signed in is told by the head of each page
        assert shown.inner_text().count(SCRIPT) > 1


@pytest.mark.parametrize("extension", ["csv", "html", "tex"])
def test_no_file_runs_what_is_planted(
    watched: Page, hostile: tuple[Site, dict[str, str]], tmp_path: Path, extension: str
) -> None:
    site, ids = hostile
    address = f"/export/comparison.{extension}?runs={ids['first']},{ids['run']}&baseline={ids['first']}"
    code, text = status(site, address, X_Forwarded_User="chief")
    assert code == 200
    if extension == "tex":
        assert "alert" in text
        assert "\\input{x}" not in text
        assert "$" not in text.replace("\\$", "").replace("$-$", "")
        return
    if extension == "csv":  # what a spreadsheet would take for a formula begins otherwise
        assert SCRIPT in text.replace('""', '"')
        assert not any(cell[:1] in "=+@" for line in text.splitlines() for cell in line.split(",") if cell)
        return
    file = tmp_path / "report.html"
    file.write_text(text, encoding="utf-8")
    watched.goto(file.as_uri())
    expect(watched.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    settled(watched)
    assert watched.locator(PLANTED).count() == 0
    assert SCRIPT in watched.locator("main").inner_text()
