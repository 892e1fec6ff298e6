"""What the forms begin with is what was measured of the chosen pair, until somebody changes it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from dashboard.ui.fields import UNCALIBRATED, pair_defaults
from tests.tools.site import Site

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_model_pairs.py")]
OURS, OTHER = pair_defaults("bundled"), pair_defaults("smollm2-135m")


def choose(page: Page, pair: str) -> None:
    page.get_by_label("Model pair").click()
    page.get_by_role("option", name=pair).click()


def of_setting(page: Page, number: int, label: str) -> Locator:
    """A field of one of the Playground's settings."""
    return page.locator(".setting:visible").nth(number - 1).get_by_label(label)


def test_an_experiment_begins_with_what_was_measured_of_the_pair(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/experiments")
    thresholds, prompts = page.get_by_label("Thresholds"), page.get_by_label("Prompts", exact=True)
    expect(thresholds).to_have_value(OURS.thresholds)
    expect(page.get_by_label("Draft lengths")).to_have_value(OURS.lengths)
    expect(prompts).to_have_value(str(OURS.limit))
    expect(page.get_by_text(OURS.sentence)).to_be_visible()
    choose(page, "SmolLM2 135M with our draft")
    expect(thresholds).to_have_value(OTHER.thresholds)
    expect(prompts).to_have_value(str(OTHER.limit))
    expect(page.get_by_text(UNCALIBRATED)).to_be_visible()
    thresholds.fill("0.07")
    choose(page, "Bundled arithmetic pair")
    expect(prompts).to_have_value(str(OURS.limit))
    expect(thresholds).to_have_value("0.07")


def test_the_playground_s_second_setting_begins_with_the_pair_s_best(page: Page, site: Site) -> None:
    page.goto(site.url)
    threshold, lengths = of_setting(page, 2, "Threshold"), [of_setting(page, i, "Draft length") for i in (1, 2)]
    expect(threshold).to_have_value(f"{OURS.threshold:g}")
    expect(lengths[0]).to_have_value(str(OURS.exact_length))
    expect(lengths[1]).to_have_value(str(OURS.exact_length))  # they differ in the rule alone
    lengths[0].fill("7")
    choose(page, "SmolLM2 135M with our draft")
    expect(lengths[1]).to_have_value(str(OTHER.exact_length))
    expect(threshold).to_have_value(f"{OTHER.threshold:g}")
    expect(lengths[0]).to_have_value("7")
