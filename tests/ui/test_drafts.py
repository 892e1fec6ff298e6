"""What the browser keeps for a person: until a session that ended is another, and for nobody else."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from fsd_core.storage.records import RunView
from tests.tools.folds import unfold
from tests.tools.settled import go, settled
from tests.tools.site import Site
from tests.ui.test_sign_in import PASSWORD, closed, sign_in

pytestmark = pytest.mark.ui
__all__ = ["closed"]  # a fixture
AWAY = "You are no longer signed in here as Author. What you typed is kept in this browser, for you alone."


def opened(page: Page, site: Site, who: str = "Author") -> tuple[RunView, Locator]:
    """The page of a run, and the field of its note."""
    run = site.repository.runs()[0]
    page.context.clear_cookies()
    sign_in(page, site, who, f"/runs?run={run.id}")
    settled(page)
    page.get_by_role("button", name="Edit note and tags").click()
    return run, page.get_by_label("Note", exact=True)


def sign_in_here(page: Page, who: str) -> None:
    page.get_by_label("Name").fill(who)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def kept_by(page: Page) -> str:
    return page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")


def test_a_session_that_ended_is_said_and_the_act_is_done_once_the_person_is_back(page: Page, closed: Site) -> None:
    run, note = opened(page, closed)
    note.fill("Before it ended")
    page.context.clear_cookies()
    away = page.locator(".fsd-still.warn")
    expect(away).to_contain_text(AWAY)
    expect(page.locator(".fsd-person form")).to_be_hidden()
    page.get_by_role("button", name="Save", exact=True).click()
    away.get_by_role("link", name="Sign in and come back").click()
    sign_in_here(page, "Author")
    expect(page).to_have_url(f"{closed.url}/runs?run={run.id}")
    expect(page.locator(".fsd-still")).to_contain_text("Sent now that the page is here again: annotate run.")
    expect(page.locator("#run-said")).to_contain_text("Before it ended")
    settled(page)
    assert closed.repository.run(run.id).note == "Before it ended"
    assert closed.repository.run(run.id).edits == run.edits + 1
    assert "Before it ended" not in kept_by(page)


@pytest.mark.wide
def test_somebody_else_neither_sees_nor_sends_it_and_signing_out_erases_it(page: Page, closed: Site) -> None:
    run, note = opened(page, closed)
    note.fill("For me alone")
    other = page.context.new_page()
    page.context.clear_cookies()
    sign_in(other, closed, "Reviewer")
    expect(other.locator(".fsd-person form")).to_contain_text("Reviewer")
    away = page.locator(".fsd-still.warn")
    expect(away).to_contain_text(AWAY)
    page.get_by_role("button", name="Save", exact=True).click()
    away.get_by_role("link", name="Go on as whoever is signed in").click()
    expect(page.locator(".fsd-person form")).to_contain_text("Reviewer")
    settled(page)
    page.get_by_role("button", name="Edit note and tags").click()
    expect(note).to_have_value(run.note)
    expect(page.locator(".fsd-still")).to_have_count(0)
    assert closed.repository.run(run.id).edits == run.edits
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/login"))
    run, note = opened(page, closed)  # the first one is back, and what they did is done
    expect(page.locator("#run-said")).to_contain_text("For me alone")
    note.fill("Typed, and never sent")
    assert "Typed, and never sent" in kept_by(page)
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/login"))
    assert "Typed, and never sent" not in kept_by(page)


@pytest.mark.wide
def test_a_form_is_as_it_was_after_signing_in_again(page: Page, closed: Site) -> None:
    page.context.clear_cookies()
    sign_in(page, closed, "Author", "/playground")
    settled(page)
    typed = page.locator("#prompt-text textarea")
    typed.fill("Typed before it ended")
    settled(page)
    for who in ("Reviewer", "Author"):
        page.context.clear_cookies()
        expect(page.locator(".fsd-still.warn")).to_contain_text("You are no longer signed in here")
        page.get_by_role("link", name="Sign in and come back").click()
        sign_in_here(page, who)
        settled(page)
        as_before = re.compile("^Typed before it ended$")
        (expect(typed).to_have_value if who == "Author" else expect(typed).not_to_have_value)(as_before)


@pytest.mark.wide
def test_a_report_that_is_loaded_anew_keeps_its_words(page: Page, closed: Site) -> None:
    experiment = closed.repository.experiments(1)[0].id
    sign_in(page, closed, "Author", f"/compare?experiment={experiment}")
    unfold(page, "Save as a report")
    expect(page.get_by_label("Report title")).to_be_visible()
    settled(page)
    page.get_by_label("Report title").fill("What it costs")
    page.get_by_label("Report text").fill("Less than we thought.")
    page.get_by_label("Margin").fill("5")
    page.get_by_label("Margin").press("Enter")
    settled(page)
    go(page, page.url)  # its parts are folded again
    expect(page.locator(".fsd-still")).to_contain_text("Still here, and not sent: Report title and Report text.")
    page.get_by_role("button", name="Save as a report").click()
    expect(page.get_by_label("Report title")).to_have_value("What it costs")
    expect(page.get_by_label("Report text")).to_have_value("Less than we thought.")
