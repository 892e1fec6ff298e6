"""A public demo in a browser: everybody looks and plays within limits; members sign in and do more."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.tools.openid_provider import Provider, providing
from tests.tools.plausible import add_finished
from tests.tools.site import Site, serving
from tests.ui.test_custom_tasks_panel import unfold
from tests.ui.test_hugging_face_sign_in import BOB, variables
from tests.ui.test_sign_in import status

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_playground_page.py")]


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with providing() as provider:
        yield provider


@pytest.fixture(scope="module")
def demo(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("home"), **variables(provider), FSD_DEMO="true") as site:
        add_finished(site.repository)
        yield site


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A duplicate without secrets, in which nobody signs in."""
    with serving(tmp_path_factory.mktemp("home"), FSD_DEMO="true", SPACE_ID="somebody/copy") as site:
        yield site


def test_a_visitor_plays_within_limits(page: Page, demo: Site) -> None:
    demo.repository.report_worker(1, "host", "cpu", "idle")
    page.goto(f"{demo.url}/playground")
    expect(page.locator("body")).to_contain_text("up to 128 tokens with up to 2 settings")
    page.get_by_role("button", name="Add a setting").click()
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#verdict")).to_contain_text("compare up to 2 settings: remove the last ones")
    assert demo.repository.queue_length() == 0
    page.get_by_role("button", name="Remove the last").click()
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#verdict")).to_contain_text(re.compile("worker", re.I))
    assert demo.repository.queue_length(("playground",)) == 1
    job = demo.repository.latest_jobs("playground")[0]
    assert "owner" not in job.payload
    demo.repository.request_cancel(job.id)


def test_a_visitor_writes_nothing_and_is_told_to_sign_in(page: Page, demo: Site) -> None:
    page.goto(f"{demo.url}/experiments")
    expect(page.locator("article.exp")).to_have_count(1)
    expect(page.get_by_role("button", name="Start experiment")).to_be_disabled()
    expect(page.get_by_text("Starting an experiment needs the role author: sign in first.")).to_be_visible()
    delete = page.get_by_role("button", name="Delete", exact=True).first
    expect(delete).to_be_disabled()
    expect(delete).to_have_attribute("title", "Deleting needs the role admin: sign in first.")
    page.goto(f"{demo.url}/review")
    expect(page.get_by_role("button", name="Make the use")).to_be_disabled()
    expect(page.locator(".fsd-notice:visible").last).to_contain_text("Making a use needs the role author: sign in")
    assert len(demo.repository.experiments(1000)) == 1
    assert demo.repository.review_log() == []
    assert status(demo, "/")[0] == 200


def test_a_member_signs_in_from_any_page_and_out_again(fresh: Page, demo: Site) -> None:
    fresh.goto(f"{demo.url}/experiments")
    fresh.get_by_role("link", name="Sign in").click()
    fresh.get_by_role("link", name=f"person {BOB}").click()
    expect(fresh.locator(".fsd-person form")).to_contain_text("bob")
    expect(fresh).to_have_url(f"{demo.url}/experiments")
    before = len(demo.repository.experiments(1000))
    fresh.get_by_role("button", name="Start experiment").click()
    expect(fresh.locator("article.exp")).to_have_count(before + 1)
    fresh.get_by_role("button", name="Sign out").click()
    expect(fresh).to_have_url(f"{demo.url}/")
    expect(fresh.get_by_role("link", name="Sign in")).to_be_visible()


def test_a_duplicate_without_secrets_is_a_demo_in_which_nobody_signs_in(page: Page, copy: Site) -> None:
    page.goto(f"{copy.url}/experiments")
    told = "Starting an experiment is not for visitors of this demo: run a copy of your own."
    expect(page.get_by_text(told).first).to_be_visible()
    expect(page.get_by_role("button", name="Start experiment")).to_be_disabled()
    expect(page.get_by_role("link", name="Sign in")).to_have_count(0)
    expect(page.locator("body")).to_contain_text("This Space forgets its runs when it restarts")
    unfold(page)
    why = re.compile("Adding a task is not for visitors of this demo")
    expect(page.locator("fieldset[data-needs='custom task']")).to_have_attribute("title", why)
    assert copy.repository.task_versions() == []
    assert len(copy.repository.experiments(1000)) == 0
    assert status(copy, "/login")[0] == 404
