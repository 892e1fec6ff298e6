"""The page Settings: every setting that was measured, and one with all there is of it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.review_events import Requirements
from tests.tools.plausible import add_finished
from tests.tools.site import Site

HOSTILE = "<img src=x onerror=alert(1)>${alert(2)}"
ANN, BOB = Person(HOSTILE, "author"), Person("Bob", "reviewer")

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_words_of_pages.py")]


@pytest.fixture(scope="module")
def experiment(site: Site) -> str:
    return add_finished(site.repository)


def test_without_a_run_it_says_what_to_do(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/settings")
    expect(page.locator(".fsd-empty")).to_contain_text("No setting was measured yet")
    expect(page.locator(".fsd-empty a")).to_have_attribute("href", "experiments")


def test_settings_are_searched_and_opened(page: Page, site: Site, experiment: str) -> None:
    page.goto(f"{site.url}/settings")
    expect(page.locator("#settings tbody tr")).to_have_count(7)
    page.get_by_label("Search").fill("js ≤ 0.2")
    expect(page.locator("#settings tbody tr")).to_have_count(1)
    page.get_by_label("Search").fill("nothing of that kind")
    expect(page.locator("#settings")).to_contain_text("No setting matches")
    page.get_by_label("Search").fill("0.2")
    page.get_by_role("link", name="FSD reducible · js ≤ 0.2").click()
    expect(page.locator("h1")).to_have_text("FSD reducible · js ≤ 0.2 · γ 5")
    row = page.get_by_label("Runs of the setting").locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("24/24")
    expect(row.locator("td").nth(5)).to_contain_text(re.compile(r"^1\.\d+ ×\d\.\d+ to \d\.\d+$"))  # × target alone
    expect(row.locator("td").nth(6)).to_contain_text(re.compile(r"^1\.\d+ ×"))  # × SD
    expect(page.locator(".fsd-facts")).to_contain_text("Threshold")
    expect(page.locator("body")).to_contain_text("Nobody proposed this setting yet")
    page.get_by_role("link", name="Compare its runs").click()
    expect(page).to_have_url(re.compile("/compare"))


def test_what_was_decided_is_told_and_is_no_markup(page: Page, site: Site, experiment: str) -> None:
    service, runs = ReviewService(site.repository), site.repository.experiment(experiment).runs
    use = service.describe(ANN, HOSTILE, HOSTILE, Requirements(margin=20))
    proposal = service.propose(ANN, use.id, [runs[3].id], [runs[0].id], HOSTILE)
    service.comment(BOB, service.review(proposal), HOSTILE)
    for requirement in service.review(proposal).open_requirements:
        service.waive(BOB, service.review(proposal), requirement, HOSTILE)
    review = service.review(proposal)
    service.submit_review(BOB, review, "approve", HOSTILE, review.use.sequence)
    page.goto(f"{site.url}/settings?setting={runs[3].setting_id}")
    expect(page.locator(".set-aliases")).to_contain_text(f"approved for {HOSTILE}")
    log = page.get_by_label("What was decided").locator("tbody tr")
    expect(log.first).to_contain_text("approved: nothing →")
    expect(log.first).to_contain_text(HOSTILE)
    expect(log.last).to_contain_text("proposed")
    expect(page.locator("main img, .fsd-html img")).to_have_count(0)
    page.goto(f"{site.url}/settings")
    expect(page.locator("#settings tbody tr", has_text=HOSTILE)).to_have_count(1)


def test_an_unknown_setting_is_told(page: Page, site: Site) -> None:
    for id in ("nothing", "f" * 16, "<script>"):
        page.goto(f"{site.url}/settings?setting={id}")
        expect(page.locator(".fsd-notice.bad")).to_contain_text("There is no setting")
