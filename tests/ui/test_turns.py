"""Show calibrations on Runs and Settings, which leave them out unless they are asked for."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from fsd_core.config.calibration_config import CalibrationConfig, candidates
from tests.tools.plausible import add_finished, finish
from tests.tools.settled import go
from tests.tools.site import Site

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_dashboard_settings.py")]

FOUND = candidates({"acceptance": ["fsd-reducible"], "threshold": "0.15, 0.25", "draft_length": [5]})
CONFIG = CalibrationConfig(
    name="Narrowed", decodings=tuple(FOUND), goal="speed", limit=64, choosing=16, seeds=(0,)
)  # fmt: skip
FIRST, THEN = [CONFIG.target, *FOUND], [CONFIG.target, *FOUND[:2]]
TURNS = len(FIRST) + len(THEN)


@pytest.fixture(scope="module")
def calibration(site: Site) -> str:
    """All do 8 prompts; some are tried on fresh ones."""
    id = site.repository.create_experiment(CONFIG, enqueue=False)
    for decodings, start, end in ((FIRST, 0, 16), (THEN, 16, 32)):
        ids = site.repository.extend_experiment(id, CONFIG.round_runs(decodings, start, end))
        for run in site.repository.runs(ids, limit=None):
            finish(site.repository, run)
    return id


def test_only_turns_are_no_empty_list(page: Page, site: Site, calibration: str) -> None:
    go(page, f"{site.url}/runs")
    expect(page.locator("#runs")).to_contain_text("Only turns of calibrations")
    page.get_by_role("link", name="Show its turns").click()
    expect(page.locator("#runs tbody tr")).to_have_count(TURNS)
    expect(page.get_by_label("Show calibrations")).to_be_checked()


def test_runs_lists_turns_where_they_are_asked_for_or_searched_for(page: Page, site: Site, calibration: str) -> None:
    add_finished(site.repository, "Own", limit=3)
    rows = page.locator("#runs tbody tr")
    go(page, f"{site.url}/runs")
    expect(rows).to_have_count(7)
    page.get_by_label("Show calibrations").check()
    expect(rows).to_have_count(7 + TURNS)
    expect(page).to_have_url(re.compile(r"/runs\?turns=true$"))
    page.reload()
    expect(rows).to_have_count(7 + TURNS)
    page.get_by_label("Show calibrations").uncheck()
    expect(rows).to_have_count(7)
    page.get_by_label("Search").first.fill("Narrowed")
    expect(rows).to_have_count(TURNS)


def test_settings_lists_what_calibrations_dropped_where_it_is_asked_for(
    page: Page, site: Site, calibration: str
) -> None:
    every, kept = site.repository.count_settings(), site.repository.count_settings(dropped=False)
    assert every > kept
    rows = page.locator("#settings tbody tr")
    go(page, f"{site.url}/settings")
    expect(rows).to_have_count(kept)
    page.get_by_label("Dropped by calibrations").check()
    expect(rows).to_have_count(every)
    page.get_by_label("Dropped by calibrations").uncheck()
    expect(rows).to_have_count(kept)
    page.get_by_label("Search").fill(FOUND[-1].label)
    expect(rows).to_have_count(1)
    rows.get_by_role("link").first.click()
    page.get_by_role("link", name="Its calibration").click()
    expect(page).to_have_url(re.compile(f"/runs\\?experiment={calibration}"))
