"""A Playground page that is loaded anew right after the click finds what it asked for."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.tools.site import Site
from tests.ui.test_playground import HOSTILE, chunk, claim, finish, prompt, worker_that_is_there

pytestmark = pytest.mark.ui
__all__ = ["worker_that_is_there"]  # a fixture, which every test here uses


@pytest.mark.parametrize("milliseconds", [0, 5, 20, 60, 120])
def test_a_reload_right_after_the_click_finds_the_job(page: Page, site: Site, milliseconds: int) -> None:
    page.goto(site.url)
    expect(page.locator(".fsd-worker")).to_contain_text("worker ready")  # the page is alive
    prompt(page).fill(f"After {milliseconds} ms")
    page.get_by_role("button", name="Generate").click()
    page.wait_for_timeout(milliseconds)
    page.reload()
    job = claim(site)
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE), chunk(1, HOSTILE)])
    expect(page.locator("#lane-1 .tok")).to_have_count(len(HOSTILE))
    expect(prompt(page)).to_have_value(f"After {milliseconds} ms")
    finish(site, job)
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    page.reload()
    expect(page.locator("#lane-2 .tok")).to_have_count(len(HOSTILE))  # and again, from what is remembered


def test_a_refused_click_leaves_the_last_job_where_it_was(page: Page, site: Site) -> None:
    page.goto(site.url)
    page.get_by_role("button", name="Generate").click()
    job = claim(site)
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE), chunk(1, HOSTILE)])
    finish(site, job)
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    prompt(page).fill(" ")
    page.get_by_role("button", name="Generate").click()
    expect(page.get_by_text("The prompt is empty")).to_be_visible()
    page.reload()
    expect(page.locator("#lane-1 .tok")).to_have_count(len(HOSTILE))
