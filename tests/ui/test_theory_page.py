"""The theory page in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.ui.conftest import Site

pytestmark = pytest.mark.ui


def test_the_bounds_follow_what_is_typed(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/theory")
    expect(page.locator(".fsd-tile dd").nth(1)).to_contain_text("91.00 %")
    expect(page.get_by_text("Optimum, without replacement")).to_be_visible()
    expect(page.locator(".heatmaplayer").first).to_be_visible()
    page.get_by_label("Target p").fill("1 0 0")
    page.get_by_label("Draft q").fill("1 1 2")
    expect(page.locator(".fsd-tile dd").nth(0)).to_contain_text("25.00 %")
    expect(page.locator(".fsd-tile dd").nth(3)).to_contain_text("50.00 %")  # C is certain, then A or B
    page.get_by_label("Target p").fill("1, <b>two</b>")
    expect(page.get_by_role("alert")).to_contain_text("is no number")
    expect(page.locator(".js-plotly-plot")).to_have_count(0)  # nor any picture of what was typed before
    page.get_by_label("Target p").fill("1, 2")
    expect(page.get_by_role("alert")).to_contain_text("The target has 2 tokens and the draft 3")
    page.get_by_label("Draft q").fill("2, 1")
    expect(page.locator(".fsd-tile dd").nth(0)).to_contain_text("66.67 %")
    expect(page.locator(".heatmaplayer").first).to_be_visible()


def test_a_large_coupling_is_told_and_not_drawn(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/theory")
    expect(page.locator(".heatmaplayer").first).to_be_visible()
    for label in ("Target p", "Draft q"):
        page.get_by_label(label).fill("1 " * 25)
    expect(page.get_by_text("too many cells for a picture")).to_be_visible()
    expect(page.locator(".heatmaplayer")).to_have_count(0)
