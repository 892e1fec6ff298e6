"""One person's playground is not seen by another, whatever browser they sit at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from fsd_core.storage.messages import PlaygroundJob
from tests.tools.settled import settled
from tests.tools.site import Site, serving
from tests.ui.test_playground import chunk, claim, finish, found_again, remember

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_playground_job.py")]
SECRET = "a prompt of ann's own"


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The application behind a proxy, which the browser plays."""
    roles = {"FSD_ACCESS": "proxy", "FSD_PROXY_ROLES": "ann=author,chief=admin,*=viewer"}
    with serving(tmp_path_factory.mktemp("home"), **roles) as site:
        yield site


def become(page: Page, behind: Site, who: str, job: str = "") -> None:
    """From now on the page is somebody's, in a browser that remembers nothing but a job."""
    page.set_extra_http_headers({"X-Forwarded-User": who})
    page.goto(f"{behind.url}/theme.css")
    remember(page, job)


def test_a_text_is_shown_to_who_asked_for_it_and_to_nobody_else(page: Page, behind: Site) -> None:
    become(page, behind, "ann")
    page.goto(f"{behind.url}/playground")
    page.locator("#prompt-text textarea").fill(SECRET)
    page.get_by_role("button", name="Generate").click()
    job = claim(page, behind)
    assert PlaygroundJob.read(job.payload).owner == "ann"
    behind.repository.append_chunks(job.id, [chunk(0, [" secret", " text"]), chunk(1, [" secret"])])
    finish(behind, job)
    expect(page.locator("#lane-1")).to_contain_text("secret text")
    page.reload()
    expect(page.locator("#lane-1")).to_contain_text("secret text")

    become(page, behind, "ann", job.id)  # at another machine
    page.goto(f"{behind.url}/playground")
    expect(page.locator("#lane-1")).to_contain_text("secret text")
    expect(page.locator("#prompt-text textarea")).to_have_value(SECRET)
    for somebody in ("bob", "chief"):
        become(page, behind, somebody, job.id)
        with page.expect_response(found_again) as told:
            page.goto(f"{behind.url}/playground")
        assert SECRET not in told.value.text()
        assert "secret" not in told.value.text()
        settled(page)
        expect(page.locator("#lane-1")).to_contain_text("appears here")
        for path in ("", "experiments", "compare", "runs", "settings", "review"):
            page.goto(f"{behind.url}/{path}")
            expect(page.locator(".fsd-person form")).to_contain_text(somebody)
            assert SECRET not in page.content()
            assert "secret text" not in page.content()


def test_what_somebody_has_typed_is_not_filled_in_for_the_next_in_the_same_tab(page: Page, behind: Site) -> None:
    become(page, behind, "ann")
    page.goto(f"{behind.url}/playground")
    prompt = page.locator("#prompt-text textarea")
    first = prompt.input_value()
    prompt.fill(SECRET)
    settled(page)
    page.reload()
    expect(prompt).to_have_value(SECRET)
    settled(page)
    page.set_extra_http_headers({"X-Forwarded-User": "bob"})
    for _ in range(2):
        with page.expect_response(found_again) as told:
            page.reload()
        assert SECRET not in told.value.text()
        settled(page)
        expect(page.locator(".fsd-person form")).to_contain_text("bob")
        expect(prompt).to_have_value(first)
