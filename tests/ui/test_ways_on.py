"""No dead ends, hints that say what words mean, numbers kept as typed, and accuracy while work is under way."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from fsd_core.statistics.intervals import wilson
from tests.tools.plausible import add_finished, do_prompts, sweep
from tests.tools.settled import go
from tests.tools.site import Site
from tests.tools.sizes import some
from tests.ui.test_playground import unfold_sampling, unfold_settings

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module", autouse=True)
def experiment(site: Site) -> str:
    return add_finished(site.repository)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("address", "sentence", "way", "leads"),
    [
        ("/runs?run=unknown", "There is no run", "See all runs", "/runs"),
        ("/compare?runs=unknown", "is not in this database: unknown", "Find the knee", "/compare?experiment="),
        ("/nosuch", "There is nothing at this address", "To the first page", "/"),
        *some(
            [
                ("/settings?setting=unknown", "There is no setting", "See all settings", "/settings"),
                ("/review?use=unknown", "There is no use", "See all uses", "/review"),
                ("/review?proposal=unknown", "There is no proposal", "See all uses", "/review"),
                ("/review?propose=unknown", "There is no setting", "See all uses", "/review"),
                ("/compare?experiment=unknown", "There is no experiment", "Find the knee", "/compare?experiment="),
                ("/runs?search=nothing+such", "No run matches", "Show all runs", "/runs"),
            ]
        ),
    ],
)
def test_an_address_that_leads_nowhere_says_so_and_where_to_go(
    page: Page, site: Site, address: str, sentence: str, way: str, leads: str
) -> None:
    page.goto(site.url + address)
    expect(page.locator("body")).to_contain_text(sentence)
    link = page.get_by_role("link", name=way).first
    expect(link).to_be_visible()
    link.click()
    expect(page).to_have_url(re.compile(re.escape(site.url + leads)))
    expect(page.locator("h1").first).to_be_visible()


def test_a_word_is_explained_by_mouse_keyboard_and_touch(page: Page, site: Site) -> None:
    go(page, f"{site.url}/runs")
    word, hint = page.get_by_role("button", name="Acceptance rate", exact=True), page.locator("#fsd-about")
    word.hover()
    expect(hint).to_have_text("Drafted tokens accepted, of all drafted")
    page.mouse.move(0, 0)
    expect(hint).to_be_hidden()
    word.focus()
    expect(hint).to_be_visible()
    expect(word).to_have_attribute("aria-describedby", "fsd-about")
    page.keyboard.press("Escape")
    expect(hint).to_be_hidden()
    word.dispatch_event("click")  # as a finger does
    expect(hint).to_be_visible()
    page.locator("h1").click()
    expect(hint).to_be_hidden()


@pytest.mark.wide
def test_a_number_is_used_as_it_is_typed_or_refused(page: Page, site: Site) -> None:
    go(page, f"{site.url}/playground")
    unfold_settings(page)
    lenient = page.locator(".setting").nth(1)
    lenient.get_by_label("Threshold").fill("0.0123456")
    unfold_sampling(page)
    page.get_by_label("Temperature").fill("1e-3")
    page.get_by_label("Tokens", exact=False).first.fill("12.5")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#verdict")).to_contain_text("12.5: expected a whole number")
    assert site.repository.claim(("playground",), 1) is None
    page.get_by_label("Tokens", exact=False).first.fill("12")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#lane-1")).to_contain_text("tokens/s")
    job = site.repository.claim(("playground",), 60)
    assert job is not None
    asked = job.payload["settings"][1]
    assert asked["acceptance"]["threshold"] == 0.0123456
    assert (asked["sampling"]["temperature"], asked["max_new_tokens"]) == (0.001, 12)
    expect(lenient.get_by_label("Threshold")).to_have_value("0.0123456")
    site.repository.finish_job(job.id, job.claim_token or "", "cancelled", None)

    go(page, f"{site.url}/experiments")
    page.get_by_label("Prompts", exact=True).fill("12.5")
    expect(page.locator(".exp-size .fsd-notice")).to_contain_text("12.5: expected a whole number")
    expect(page.get_by_label("Prompts", exact=True)).to_have_value("12.5")

    go(page, f"{site.url}/review")
    page.get_by_label("Name").fill("Half a person")
    page.get_by_label("Approvals").fill("1.5")
    page.get_by_role("button", name="Make the use").click()
    expect(page.locator(".fsd-notice.bad")).to_contain_text("pprovals")
    expect(page.locator(".fsd-notice.bad")).to_contain_text("1.5")


@pytest.mark.wide
def test_accuracy_is_told_while_an_experiment_runs(page: Page, site: Site) -> None:
    repository = site.repository
    running = repository.create_experiment(sweep("Under way"))
    job = repository.claim(("experiment",), 600)
    assert job is not None
    go(page, f"{site.url}/experiments")
    card = page.locator("article.exp", has_text="Under way")
    first = card.locator("tbody tr").first
    expect(first).to_contain_text("0/24")
    generations = do_prompts(repository, repository.experiment(running).runs[0], 10)
    solved = sum(generation.outcome == "correct" for generation in generations)
    low, high = wilson(solved, 10)
    expect(first).to_contain_text("10/24")
    expect(first).to_contain_text(f"{10 * solved} %")
    expect(first.locator(".range")).to_have_text(f"{100 * low:.0f} to {100 * high:.0f}")
    repository.finish_job(job.id, job.claim_token or "", "failed", "The worker was lost.")
