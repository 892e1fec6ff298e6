"""Names, notes, tags and the archive on the pages, and who did what."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from fsd_core.roles import Person
from fsd_core.storage.records import Edit
from tests.tools import plausible
from tests.tools.real_tokens import HOSTILE
from tests.tools.settled import go
from tests.tools.site import Site

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_repository.py")]


@pytest.fixture
def experiment(site: Site) -> str:
    """The id of a new finished experiment."""
    return plausible.add_finished(site.repository, f"Named {HOSTILE}", limit=2)


def edit(page: Page, title: str, **values: str) -> None:
    if not page.get_by_label("Note").locator("visible=true").count():
        page.get_by_role("button", name=title).click()
    for label, value in values.items():
        page.get_by_label(label).locator("visible=true").fill(value)
    page.get_by_role("button", name="Save").locator("visible=true").click()


def test_an_experiment_is_named_noted_and_tagged(page: Page, site: Site, experiment: str) -> None:
    tag = f"of-{experiment[:8]}"  # another one where the test is repeated
    go(page, f"{site.url}/runs?experiment={experiment}")
    expect(page.locator("#experiment-head h1")).to_contain_text("Named")
    expect(page.locator("#experiment-runs tbody tr")).to_have_count(7)
    edit(page, "Edit name, note and tags", Name=f"Better {HOSTILE}", Note=f"Odd {HOSTILE}\nline", Tags=f"paper, {tag}")
    expect(page.get_by_text("Saved.")).to_be_visible()
    expect(page.locator("#experiment-head h1")).to_contain_text("Better")
    expect(page.locator("#experiment-said .fsd-chip")).to_have_text([tag, "paper"])
    expect(page.locator("#experiment-said .fsd-note")).to_contain_text(HOSTILE)
    page.get_by_text("History, 1 change").click()
    expect(page.get_by_role("table", name="History")).to_contain_text("local user admin")
    expect(page.get_by_role("table", name="History")).to_contain_text("renamed it from")
    go(page, f"{site.url}/runs?search={tag}")
    expect(page.locator("#runs tbody tr")).to_have_count(7)


def test_one_who_was_overtaken_is_told_and_keeps_what_was_typed(page: Page, site: Site, experiment: str) -> None:
    run = site.repository.experiment(experiment).runs[0].id
    go(page, f"{site.url}/runs?run={run}")
    expect(page.get_by_role("button", name="Edit note and tags")).to_be_visible()
    site.repository.annotate("run", run, Edit(note="Ann's words"), Person("Ann", "author"))
    edit(page, "Edit note and tags", Note="Bob's words")
    expect(page.get_by_text("Ann changed this in the meantime")).to_be_visible()
    expect(page.locator("#run-said")).to_contain_text("Ann's words")
    expect(page.get_by_label("Note").locator("visible=true")).to_have_value("Bob's words")
    assert site.repository.run(run).note == "Ann's words"
    page.get_by_role("button", name="Save").locator("visible=true").click()
    expect(page.locator("#run-said")).to_contain_text("Bob's words")
    assert len(site.repository.changes(subject=run, limit=9)) == 2
    edit(page, "Edit note and tags", Tags="x" * 40)
    expect(page.get_by_role("alert").filter(has_text="expected 1 to 30 characters")).to_be_visible()


def test_what_is_archived_is_hidden_from_lists_and_never_from_links(page: Page, site: Site, experiment: str) -> None:
    go(page, f"{site.url}/experiments")
    card = page.locator(f"[data-experiment='{experiment}']")
    card.get_by_role("button", name="Archive").click()
    expect(card).to_have_count(0)
    page.get_by_label("Show archived").check()
    expect(card.locator(".fsd-chip.archived")).to_be_visible()
    run = site.repository.experiment(experiment).runs[0].id
    go(page, f"{site.url}/runs")
    expect(page.locator(f"#runs [data-run='{run}']")).to_have_count(0)
    page.get_by_label("Show archived").check()
    expect(page.locator(f"#runs [data-run='{run}']")).to_have_count(1)
    expect(page).to_have_url(re.compile("archived=true"))
    page.reload()
    expect(page.locator(f"#runs [data-run='{run}']")).to_have_count(1)
    go(page, f"{site.url}/compare?experiment={experiment}")
    expect(page.get_by_role("table", name="Answers of the runs")).to_be_visible()
    go(page, f"{site.url}/runs?experiment={experiment}")
    page.get_by_role("button", name="Unarchive").click()
    expect(page.get_by_text("is in the lists again")).to_be_visible()
    assert not site.repository.experiment(experiment).archived


def test_a_deleted_experiment_says_who_deleted_it(page: Page, site: Site, experiment: str) -> None:
    go(page, f"{site.url}/runs?experiment={experiment}")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("alert")).to_contain_text("local user deleted")
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("local user deleted")
    go(page, f"{site.url}/runs")
    page.get_by_text("Changes and deletions").click()
    expect(page.get_by_role("table", name="Changes and deletions")).to_contain_text("with 7 runs and")
