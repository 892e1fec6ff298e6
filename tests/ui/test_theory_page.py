"""The theory page in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from fsd_core.models.model_pairs import pair_title
from fsd_core.storage.records import RunView
from tests.tools.plausible import add_finished
from tests.tools.settled import Held, go, settled
from tests.tools.site import Site
from tests.unit.test_dashboard_theory import BOUNDS

pytestmark = pytest.mark.ui


def test_the_bounds_follow_what_is_typed_and_a_large_coupling_is_told_and_not_drawn(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/theory")
    expect(page.locator(".fsd-tile dd").nth(1)).to_contain_text("91.00 %")
    expect(page.get_by_text("Optimum, without replacement")).to_be_visible()
    expect(page.locator(".heatmaplayer").first).to_be_visible()
    page.get_by_label("Target p").fill("1 0 0")
    page.get_by_label("Draft q").fill("1 1 2")
    expect(page.locator(".fsd-tile dd").nth(0)).to_contain_text("25.00 %")
    expect(page.locator(".fsd-tile dd").nth(3)).to_contain_text("50.00 %")  # C is certain, then A or B
    expect(page.get_by_text("Beams that drafts fill")).to_be_visible()
    page.get_by_label("Target p").fill("1, <b>two</b>")
    expect(page.get_by_role("alert")).to_contain_text("is not a number")
    expect(page.locator(".js-plotly-plot")).to_have_count(0)  # nor any picture of what was typed before
    page.get_by_label("Target p").fill("1, 2")
    expect(page.get_by_role("alert")).to_contain_text("The target has 2 tokens and the draft 3")
    page.get_by_label("Draft q").fill("2, 1")
    expect(page.locator(".fsd-tile dd").nth(0)).to_contain_text("66.67 %")
    expect(page.locator(".heatmaplayer").first).to_be_visible()

    for label in ("Target p", "Draft q"):
        page.get_by_label(label).fill("1 " * 25)
    expect(page.get_by_text("too many cells for a picture")).to_be_visible()
    expect(page.locator(".heatmaplayer")).to_have_count(0)


@pytest.mark.wide
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
    page.get_by_label("Temperature").fill("warm")
    page.get_by_role("button", name="Measure bounds").click()
    expect(page.get_by_text("“Temperature” is 'warm': expected a number, or nothing.")).to_be_visible()
    page.get_by_label("Temperature").fill("")
    page.get_by_role("button", name="Measure bounds").click()
    expect(page.get_by_text("The worker is not running")).to_be_visible()
    job = site.repository.claim(("bounds",), 60)
    assert job is not None
    assert job.payload["temperature"] is None  # the run's
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
        title = f"{one.label} · {pair_title(one.pair)} · at 48 positions, temperature {temperature}"
        expect(page.get_by_role("heading", name=title)).to_be_visible()
        expect(page.locator(".js-plotly-plot").filter(has_text=title)).to_be_visible()


def choose(page: Page, *runs: RunView) -> None:
    """Chooses these runs alone."""
    field = page.get_by_label("Runs", exact=True)
    field.click()
    for _ in range(page.locator(".token-remove").count()):
        page.keyboard.press("Backspace")
    for run in runs:
        page.get_by_role("option").filter(has_text=run.id[:6]).click()
    page.keyboard.press("Escape")


def measured(site: Site, run: RunView, temperature: float) -> None:
    bounds = [BOUNDS | {"temperature": temperature}]
    site.repository.set_scores(run.id, {}, (run.metrics or {}) | {"bounds": bounds})


def end(site: Site, bounds: bool = True) -> None:
    """Does the next job, as a worker."""
    job = site.repository.claim(("bounds",), 60)
    assert job is not None
    if bounds:
        measured(site, site.repository.run(job.payload["run_id"]), 1.0)
    site.repository.finish_job(
        job.id, str(job.claim_token), "finished" if bounds else "failed", "" if bounds else "Lost."
    )


@pytest.mark.wide
def test_a_late_look_at_the_jobs_keeps_the_runs_that_were_chosen_meanwhile(page: Page, site: Site) -> None:
    runs = site.repository.experiment(add_finished(site.repository, "Late")).runs
    first, second = [run for run in runs if run.decoding.drafter][:2]
    measured(site, second, 0.5)
    go(page, f"{site.url}/theory")
    choose(page, first)
    expect(page.get_by_text(re.compile("No bounds of .* are known yet"))).to_contain_text(first.id[:6])
    page.get_by_role("button", name="Measure bounds").click()
    expect(page.get_by_text("The worker is not running")).to_be_visible()
    settled(page)
    end(site)
    held = Held(page, answers=True)
    held.wait(2)  # the header's clock and the page's, which has found the end
    choose(page, second)
    held.release()
    expect(page.get_by_text("At 48 positions, temperature 0.5", exact=True)).to_be_visible()
    settled(page)
    expect(page.get_by_text("At 48 positions, temperature 1", exact=True)).to_have_count(0)
    expect(page.get_by_role("button", name="Measure bounds")).to_be_enabled()


@pytest.mark.wide
def test_a_double_click_measures_once_and_a_second_tab_follows(page: Page, site: Site, profile: BrowserContext) -> None:
    run = site.repository.experiment(add_finished(site.repository, "Once")).runs[-1]
    other = profile.new_page()
    for tab in (page, other):
        go(tab, f"{site.url}/theory")
        choose(tab, run)
        settled(tab)
    page.get_by_role("button", name="Measure bounds").dblclick()
    expect(page.get_by_text("The worker is not running")).to_be_visible()
    other.get_by_role("button", name="Measure bounds").click()
    expect(other.get_by_text("The worker is not running")).to_be_visible()
    expect(other.get_by_role("button", name="Measure bounds")).to_be_disabled()
    assert site.repository.queue_length(("bounds",)) == 1
    other.reload()
    settled(other)
    choose(other, run)
    expect(other.get_by_text("The worker is not running")).to_be_visible()
    end(site, bounds=False)
    for tab in (page, other):
        expect(tab.get_by_role("alert")).to_contain_text("Lost.")
        expect(tab.get_by_role("button", name="Measure bounds")).to_be_enabled()


@pytest.mark.wide
def test_what_was_typed_last_counts_and_outlasts_a_reload(page: Page, site: Site) -> None:
    go(page, f"{site.url}/theory")
    held = Held(page)
    page.get_by_label("Target p").fill("1 0 0")
    held.wait()
    page.get_by_label("Draft q").fill("1 1 2")
    page.get_by_role("radio", name="3", exact=True).check()
    held.release()
    expect(page.locator(".fsd-tile dd").nth(0)).to_contain_text("25.00 %")
    expect(page.locator(".fsd-tile dd").nth(1)).to_contain_text("with 3 drafts")
    page.reload()
    expect(page.get_by_label("Target p")).to_have_value("1 0 0")
    expect(page.locator(".fsd-tile dd").nth(1)).to_contain_text("with 3 drafts")
