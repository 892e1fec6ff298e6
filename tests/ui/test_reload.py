"""A Playground page that is loaded anew right after the click finds what it asked for."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.tools.settled import meanwhile, settled
from tests.tools.site import Site
from tests.tools.sizes import PATIENCE
from tests.ui.test_playground import HOSTILE, chunk, claim, finish, prompt, questions, worker_that_is_there

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_playground.py")]
__all__ = ["worker_that_is_there"]  # a fixture, which every test here uses


def begins(request: Request) -> bool:
    """Whether it asks for a job."""
    return questions(request) and "generate" in (request.post_data or "")


@pytest.mark.parametrize("lost", ["question", "answer", "nothing"])
def test_a_reload_right_after_the_click_finds_the_job(page: Page, site: Site, lost: str) -> None:
    """The page is gone before its question has arrived, before the answer has, or just then."""
    asked: list[Route] = []

    def hold(route: Route) -> None:
        if asked or not begins(route.request):
            route.continue_()
            return
        asked.append(route)
        if lost != "question":
            answer = route.fetch(timeout=1000 * PATIENCE)
            if lost == "nothing":
                route.fulfill(response=answer)

    page.goto(site.url)
    settled(page)
    prompt(page).fill(f"Lost: {lost}")
    page.route("**/gradio_api/run/**", hold)
    page.get_by_role("button", name="Generate").click()
    meanwhile(page, lambda: asked, "the question")
    if lost != "question":
        meanwhile(page, lambda: site.repository.queue_length(("playground",)), "the job")
    page.reload(wait_until="commit")
    if lost == "question":  # it was on its way, and comes when the page that sent it is gone
        page.request.fetch(asked[0].request, timeout=1000 * PATIENCE)
    job = claim(page, site)
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE), chunk(1, HOSTILE)])
    expect(page.locator("#lane-1 .tok")).to_have_count(len(HOSTILE))
    expect(prompt(page)).to_have_value(f"Lost: {lost}")
    assert site.repository.queue_length(("playground",)) == 0  # it was begun once
    finish(site, job)
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    page.reload()
    expect(page.locator("#lane-2 .tok")).to_have_count(len(HOSTILE))  # and again, from what is remembered


def test_a_refused_click_leaves_the_last_job_where_it_was(page: Page, site: Site) -> None:
    page.goto(site.url)
    page.get_by_role("button", name="Generate").click()
    job = claim(page, site)
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE), chunk(1, HOSTILE)])
    finish(site, job)
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    prompt(page).fill(" ")
    page.get_by_role("button", name="Generate").click()
    expect(page.get_by_text("The prompt is empty")).to_be_visible()
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    page.reload()
    expect(page.locator("#lane-1 .tok")).to_have_count(len(HOSTILE))
    settled(page)
    expect(page.get_by_text("The prompt is empty")).to_have_count(0)  # what was answered is not asked again
