"""One person's playground is not seen by another, whatever browser they sit at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from fsd_core.tracking.messages import PlaygroundJob
from tests.tools.site import Site, serving
from tests.ui.test_playground import chunk, claim, finish

pytestmark = pytest.mark.ui
SECRET = "a prompt of ann's own"


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The application behind a proxy, which the browser plays."""
    roles = {"FSD_ACCESS": "proxy", "FSD_PROXY_ROLES": "ann=author,chief=admin,*=viewer"}
    with serving(tmp_path_factory.mktemp("home"), **roles) as site:
        yield site


@contextmanager
def window(browser: Browser, who: str, job: str = "") -> Iterator[Page]:
    """A window of somebody's; its browser remembers a job."""
    context = browser.new_context(extra_http_headers={"X-Forwarded-User": who})
    context.add_init_script(f"if ({job!r}) localStorage.setItem('fsd-lab-job', {job!r})")
    try:
        yield context.new_page()
    finally:
        context.close()


def test_a_text_is_shown_to_who_asked_for_it_and_to_nobody_else(browser: Browser, behind: Site) -> None:
    with window(browser, "ann") as page:
        page.goto(behind.url)
        page.locator("#prompt-text textarea").fill(SECRET)
        page.get_by_role("button", name="Generate").click()
        job = claim(behind)
        assert PlaygroundJob.read(job.payload).owner == "ann"
        behind.repository.append_chunks(job.id, [chunk(0, [" secret", " text"]), chunk(1, [" secret"])])
        finish(behind, job)
        expect(page.locator("#lane-1")).to_contain_text("secret text")
        page.reload()
        expect(page.locator("#lane-1")).to_contain_text("secret text")
    with window(browser, "ann", job.id) as page:  # at another machine
        page.goto(behind.url)
        expect(page.locator("#lane-1")).to_contain_text("secret text")
        expect(page.locator("#prompt-text textarea")).to_have_value(SECRET)
    for somebody in ("bob", "chief"):
        with window(browser, somebody, job.id) as page:
            page.goto(behind.url)
            expect(page.locator(".fsd-person form")).to_contain_text(somebody)
            page.wait_for_timeout(500)
            expect(page.locator("#lane-1")).to_contain_text("appears here")
            for path in ("", "experiments", "compare", "runs", "settings", "review"):
                page.goto(f"{behind.url}/{path}")
                expect(page.locator(".fsd-person form")).to_contain_text(somebody)
                assert SECRET not in page.content()
                assert "secret text" not in page.content()
