"""The theory page in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.tools.plausible import add_finished
from tests.tools.site import Site
from tests.unit.test_speedup import BOUNDS

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
    expect(page.get_by_role("alert")).to_contain_text("is not a number")
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


def test_bounds_of_a_run_are_asked_for_and_shown(site: Site, page: Page) -> None:
    """Without a worker the page says what to do; when the bounds are there it shows them."""
    experiment = add_finished(site.repository, "Bounds")
    runs = site.repository.experiment(experiment).runs
    page.goto(f"{site.url}/theory")
    expect(page.get_by_text(re.compile("No bounds of .* are known yet"))).to_be_visible()
    expect(page.get_by_text("Speed-up, predicted and measured")).to_be_visible()
    page.get_by_label("Temperature").fill("0")
    page.get_by_role("button", name="Measure bounds").click()
    expect(page.get_by_text("expected more than 0, where several drafts differ")).to_be_visible()
    page.get_by_label("Temperature").fill("1")
    page.get_by_role("button", name="Measure bounds").click()
    expect(page.get_by_text("The worker is not running")).to_be_visible()
    job = site.repository.claim(("bounds",), 60)
    assert job is not None
    assert job.payload["temperature"] == 1
    assert job.claim_token is not None
    run = site.repository.run(job.payload["run_id"])
    assert run.id in {run.id for run in runs}
    site.repository.set_scores(run.id, {}, (run.metrics or {}) | {"bounds": [BOUNDS]})
    site.repository.finish_job(job.id, job.claim_token, "finished")
    expect(page.get_by_text("At 48 positions, temperature 1", exact=True)).to_be_visible()
    expect(page.get_by_role("table", name="Acceptance by the number of drafts")).to_contain_text("58.0")

    other = next(one for one in reversed(runs) if one.id != run.id)
    site.repository.set_scores(other.id, {}, (other.metrics or {}) | {"bounds": [BOUNDS | {"temperature": 0.5}]})
    page.reload()
    expect(page.get_by_role("table", name="Acceptance by the number of drafts")).to_have_count(1)
    page.get_by_label("Runs").click()
    page.get_by_role("option").filter(has_not=page.locator(".selected")).filter(has_text=other.id[:6]).click()
    expect(page.get_by_role("table", name="Acceptance by the number of drafts")).to_have_count(2)
    for one, temperature in ((run, 1), (other, 0.5)):
        title = f"{one.label} · {one.pair} · at 48 positions, temperature {temperature}"
        expect(page.get_by_role("heading", name=title)).to_be_visible()
        expect(page.locator(".js-plotly-plot").filter(has_text=title)).to_be_visible()
