"""Compare at matched points, in a browser, over a small sweep of the bundled pair; and the way to what is missing."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

import fsd_core
from tests.tools.settled import go
from tests.tools.site import Site

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_matching.py")]


@pytest.fixture(scope="module")
def experiment(site: Site) -> str:
    """The real pair with two rules on eight prompts, kept where the site looks."""
    swept = fsd_core.sweep(
        limit=8, acceptance=["fsd-reducible", "head-strict"], threshold=[0.1, 0.5], head_width=[0.5, 0.9],
        max_new_tokens=48, home=site.home, name="Matched",
    )  # fmt: skip
    assert swept.experiment_id is not None
    return swept.experiment_id


def test_rules_are_compared_at_equal_cost_and_at_equal_accuracy(page: Page, site: Site, experiment: str):
    go(page, f"{site.url}/compare?experiment={experiment}")
    told = page.locator("#matched")
    expect(told).to_contain_text("Target passes against SD · γ 5, accuracy against Target alone, on 8 prompts")
    for title in ("Accuracy lost at equal target passes", "Target passes at equal accuracy", "Beside the curves"):
        expect(told.get_by_role("table", name=title)).to_be_visible()
    rules = told.get_by_role("table", name="Accuracy lost at equal target passes").locator("tbody th")
    expect(rules).to_have_text(["FSD reducible · js · γ 5", "Head, else strict · head width · γ 5"])
    expect(told).to_contain_text("not enough prompts")  # eight tell nothing apart
    expect(page.locator(".js-plotly-plot .gtitle", has_text="Accuracy at equal target passes")).to_be_visible()
    expect(page.locator(".js-plotly-plot .gtitle", has_text="Target passes within 2 points")).to_be_visible()


def test_costs_ratios_and_losses_are_chosen_and_refused_in_a_sentence(page: Page, site: Site, experiment: str):
    go(page, f"{site.url}/compare?experiment={experiment}")
    told = page.locator("#matched")
    expect(told).to_contain_text("2× fewer")
    page.get_by_label("Times fewer").fill("1.05")
    page.get_by_label("Times fewer").press("Enter")
    expect(told).to_contain_text("1.05× fewer")
    expect(told).not_to_contain_text("1.3× fewer")
    page.get_by_label("Time per answer", exact=True).click()
    expect(told).to_contain_text("Time per answer at equal accuracy")
    page.get_by_label("Points that may be lost").fill("40")
    page.get_by_label("Points that may be lost").press("Enter")
    expect(told).to_contain_text("The margin is 40 points: expected 0 to 20 points of accuracy.")


def test_a_narrow_window_scrolls_the_tables_and_nothing_else(page: Page, site: Site, experiment: str):
    page.set_viewport_size({"width": 400, "height": 900})
    go(page, f"{site.url}/compare?experiment={experiment}")
    expect(page.locator("#matched table")).to_have_count(3)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_link_leads_to_an_experiment_that_adds_what_is_missing(page: Page, site: Site, experiment: str):
    go(page, f"{site.url}/compare?experiment={experiment}")
    expect(page.locator("#matched")).to_contain_text("Not measured on these prompts: Block · γ 5 and Draft alone.")
    page.get_by_role("link", name="Add Block, Draft alone").click()
    expect(page).to_have_url(re.compile(r"/experiments\?like=[0-9a-f]{32}&rules=block,draft-only|block%2Cdraft-only"))
    expect(page.get_by_text("2 settings × 1 seed × 8 prompts = 16 generations")).to_be_visible()
    expect(page.get_by_label("Longest answer")).to_have_value("48")
    page.get_by_role("button", name="Start experiment").click()
    expect(page.locator("article.exp").first).to_contain_text("queued")
    added = site.repository.experiments(limit=1, offset=0, archived=False)[0]
    assert [run.decoding.acceptance.kind for run in added.runs] == ["draft-only", "block"]
    like = site.repository.experiment(experiment).runs[0]
    assert {(run.config.limit, run.task, run.seed, run.decoding.max_new_tokens) for run in added.runs} == {
        (8, like.task, like.seed, 48)
    }
