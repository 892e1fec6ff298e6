"""The pages of runs show one state, however slow the answers and quick the hands are."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, Page, expect

from fsd_core.config import RunConfig
from fsd_core.worker import run_actions
from tests.tools import plausible
from tests.tools.settled import Held, go, polled
from tests.tools.site import Site
from tests.tools.tracking_examples import generation

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_runs_in_one_state.py")]


@pytest.fixture
def experiment(site: Site) -> str:
    """The id of a new finished experiment of seven runs with three prompts each."""
    return plausible.add_finished(site.repository, f"State-{uuid4().hex}", limit=3)


@pytest.fixture
def under_way(site: Site) -> str:
    """The id of a run without prompts so far."""
    return site.repository.create_run(RunConfig(limit=3))


def rows(page: Page) -> Locator:
    return page.locator("#runs tbody tr")


def choose(page: Page, label: str, option: str) -> None:
    field = page.get_by_label(label, exact=True).locator("visible=true")
    field.click()
    page.get_by_role("option", name=option, exact=True).click()


def edit(page: Page) -> None:
    page.get_by_role("button", name=re.compile("^Edit ")).locator("visible=true").click()


def field(page: Page, label: str) -> Locator:
    return page.get_by_label(label, exact=True).locator("visible=true")


def test_a_double_click_archives_once(page: Page, site: Site, experiment: str) -> None:
    go(page, f"{site.url}/runs?experiment={experiment}")
    page.get_by_role("button", name="Archive").dblclick()
    expect(page.get_by_role("button", name="Unarchive")).to_be_visible()
    polled(page, 2.0)
    expect(page.get_by_role("button", name="Unarchive")).to_be_visible()
    assert len(site.repository.changes(subject=experiment, limit=10)) == 1


def test_a_double_click_resumes_and_does_not_cancel(page: Page, site: Site) -> None:
    experiment = site.repository.create_experiment(plausible.sweep("Failed", limit=3))
    job = site.repository.claim(("experiment",), 600)
    assert job is not None
    site.repository.finish_job(job.id, str(job.claim_token), "failed", "The worker was lost.")
    go(page, f"{site.url}/runs?experiment={experiment}")
    page.get_by_role("button", name="Resume").dblclick()
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    polled(page, 3.0)
    resumed = site.repository.experiment(experiment)
    assert (resumed.status, resumed.cancel_requested) == ("queued", False)
    site.repository.request_cancel(experiment)


def test_filters_that_are_chosen_while_an_answer_is_late_all_count(page: Page, site: Site, experiment: str) -> None:
    go(page, f"{site.url}/runs")
    held = Held(page)
    choose(page, "Algorithm", "SD")
    held.wait()
    choose(page, "Order", "Oldest first")
    name = site.repository.experiment(experiment).name
    field(page, "Search").fill(name)
    held.release()
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("SD")
    expect(page).to_have_url(re.compile(rf"\?search={name}&algorithm=speculative&sort=oldest$"))


def test_a_late_look_at_a_run_keeps_the_filter_that_was_chosen_meanwhile(
    page: Page, site: Site, under_way: str
) -> None:
    site.repository.record_generation(under_way, generation(0))
    go(page, f"{site.url}/runs?run={under_way}")
    expect(page.locator("#prompts tbody tr")).to_have_count(1)
    site.repository.record_generation(under_way, generation(1))
    held = Held(page, answers=True)
    held.wait()  # the clock's
    choose(page, "Outcome", "Failed")
    held.release()
    expect(page.locator("#prompts tbody tr")).to_have_count(0)
    polled(page, 1.5)
    expect(field(page, "Outcome")).to_have_value("Failed")
    expect(page.locator("#prompts tbody tr")).to_have_count(0)


def test_the_first_prompt_of_a_run_keeps_the_filters(page: Page, site: Site, under_way: str) -> None:
    go(page, f"{site.url}/runs?run={under_way}")
    choose(page, "Outcome", "Failed")
    field(page, "Search").fill("nothing has this")
    site.repository.record_generation(under_way, generation(0))
    expect(page.locator("#prompt")).to_contain_text("Prompt 1")
    expect(field(page, "Outcome")).to_have_value("Failed")
    expect(field(page, "Search")).to_have_value("nothing has this")
    expect(page.locator("#prompts tbody tr")).to_have_count(0)


def test_a_run_that_is_deleted_elsewhere_says_so(page: Page, site: Site) -> None:
    run = site.repository.create_run(RunConfig(limit=3))
    go(page, f"{site.url}/runs?run={run}")
    expect(page.get_by_role("alert")).to_have_count(0)
    run_actions.delete(site.repository, site.home, "run", run)
    expect(page.get_by_role("alert")).to_contain_text("local user deleted")
    expect(page.get_by_role("link", name="See all runs")).to_be_visible()


def test_prompts_that_are_opened_while_an_answer_is_late_end_with_the_last(
    page: Page, site: Site, experiment: str
) -> None:
    run = site.repository.experiment(experiment).runs[0].id
    go(page, f"{site.url}/runs?run={run}")
    held = Held(page)
    page.locator("#prompts button[data-prompt]").nth(1).click()
    held.wait()
    page.locator("#prompts button[data-prompt]").nth(2).click()
    held.release()
    expect(page.locator("#prompt")).to_contain_text("Prompt 3")
    expect(page.locator("#prompts [aria-pressed=true]")).to_have_count(1)


def test_what_is_typed_after_saving_stays(page: Page, site: Site, experiment: str) -> None:
    go(page, f"{site.url}/runs?experiment={experiment}")
    edit(page)
    field(page, "Note").fill("First")
    held = Held(page)
    page.get_by_role("button", name="Save").locator("visible=true").click()
    held.wait()
    field(page, "Note").fill("First, and then second")
    held.release()
    expect(page.get_by_text("Saved.")).to_be_visible()
    expect(page.locator("#experiment-said")).to_contain_text("First")
    expect(field(page, "Note")).to_have_value("First, and then second")
    page.get_by_role("button", name="Save").locator("visible=true").click()
    expect(page.locator("#experiment-said")).to_contain_text("First, and then second")


def test_a_name_that_was_saved_is_not_overtaken_by_an_older_answer(page: Page, site: Site) -> None:
    experiment = site.repository.create_experiment(plausible.sweep("Old name", limit=3))
    go(page, f"{site.url}/runs?experiment={experiment}")
    edit(page)
    field(page, "Name").fill("New name")
    held = Held(page, answers=True)
    held.wait()  # the clock's, with the old name
    page.get_by_role("button", name="Save").locator("visible=true").click()
    held.release()
    expect(page.get_by_text("Saved.")).to_be_visible()
    expect(page.locator("#experiment-head h1")).to_contain_text("New name")
    polled(page, 3.0)
    expect(page.locator("#experiment-head h1")).to_contain_text("New name")
    site.repository.request_cancel(experiment)
