"""What people add to runs and outputs: names, notes, tags and marks, kept for everybody."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from fsd_core.roles import Person
from fsd_core.storage.records import Edit, RunView
from tests.tools import plausible
from tests.tools.plausible import add_finished
from tests.tools.real_tokens import HOSTILE as HOSTILE_TOKENS
from tests.tools.settled import Held, go, settled
from tests.tools.site import Site
from tests.ui.test_sign_in import closed, sign_in  # noqa: F401  # the fixture

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_repository.py")]


HOSTILE = "<img src=x onerror=alert(1)>${alert(2)}"


@pytest.fixture(scope="module")
def runs(site: Site) -> list[RunView]:
    return list(site.repository.experiment(add_finished(site.repository, "To be read")).runs)


def opened(page: Page, site: Site, runs: list[RunView], other: int = 3) -> Locator:
    """Compare, with all prompts of two runs shown."""
    go(page, f"{site.url}/compare?runs={runs[0].id},{runs[other].id}&baseline={runs[0].id}&tab=prompts")
    expect(page.locator(".pair-filter")).to_be_visible()
    expect(page.get_by_text("shared prompts, both solve")).to_be_visible()
    page.get_by_label("All", exact=True).check()
    sides = page.locator(".side[data-run]")
    expect(sides).to_have_count(10)
    expect(page.get_by_text("24 prompts of 24, 1 to 5 shown.")).to_be_visible()
    return sides


def focused(page: Page) -> tuple[str, int]:
    """The output in focus: its run and the number of its prompt."""
    found = page.evaluate("(({run, position}) => [run, Number(position) + 1])(document.activeElement.dataset)")
    return found[0], found[1]


def test_prompts_are_read_and_marked_by_key(page: Page, site: Site, runs: list[RunView]) -> None:
    sides = opened(page, site, runs)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    expect(sides.first).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("l")
    expect(sides.nth(3)).to_be_focused()
    page.keyboard.press("g")
    expect(sides.nth(3).get_by_role("button", name="Good")).to_have_attribute("aria-pressed", "true")
    expect(sides.nth(3)).to_be_focused()
    assert [(m.position, m.verdict) for m in site.repository.marks([focused(page)[0]])] == [(1, "good")]
    page.keyboard.press("b")
    expect(sides.nth(3).get_by_role("button", name="Bad")).to_have_attribute("aria-pressed", "true")
    expect(sides.nth(3).get_by_role("button", name="Good")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("n")
    page.get_by_label("Note on this output").fill(f"jkg: wrong unit {HOSTILE}")
    page.get_by_role("button", name="Keep the note").click()
    expect(sides.nth(3).locator(".marks")).to_contain_text("jkg: wrong unit <img")
    expect(page.locator(".pair img")).to_have_count(0)
    expect(sides.nth(3)).to_be_focused()
    for _ in range(4):
        page.keyboard.press("j")
    expect(page.get_by_text("24 prompts of 24, 6 to 10 shown.")).to_be_visible()
    expect(sides.first).to_be_focused()
    assert focused(page)[1] == 6
    page.keyboard.press("k")
    expect(page.get_by_text("24 prompts of 24, 1 to 5 shown.")).to_be_visible()
    expect(sides.nth(8)).to_be_focused()

    page.get_by_label("Marked").check()
    expect(sides).to_have_count(2)
    sides.nth(1).get_by_role("button", name="Bad").click()  # taken back; the note stays
    expect(sides.nth(1).get_by_role("button", name="Bad")).to_have_attribute("aria-pressed", "false")
    sides.nth(1).get_by_role("button", name="Note").click()
    page.get_by_label("Note on this output").fill("  ")
    page.get_by_role("button", name="Keep the note").click()
    expect(page.get_by_text("No prompt of this kind")).to_be_visible()
    assert site.repository.marks([run.id for run in runs]) == []


def test_a_mark_that_is_made_again_after_another_is_the_last(page: Page, site: Site, runs: list[RunView]) -> None:
    sides = opened(page, site, runs)
    held = Held(page)
    sides.first.focus()
    for key in "gbg":
        page.keyboard.press(key)
    held.wait()
    held.release()
    expect(sides.first.get_by_role("button", name="Good")).to_have_attribute("aria-pressed", "true")
    settled(page)
    (marked,) = site.repository.marks([runs[0].id])
    assert marked.verdict == "good"
    site.repository.mark(marked.run_id, marked.position, marked.who, None)


def test_keys_are_letters_where_somebody_types(page: Page, site: Site, runs: list[RunView]) -> None:
    sides = opened(page, site, runs)
    sides.first.focus()
    page.get_by_label("Margin").click()
    page.keyboard.type("jgbn")
    settled(page)  # a mark would be kept by now
    assert site.repository.marks([run.id for run in runs]) == []
    expect(page.locator("dialog")).to_have_count(0)


def test_filters_and_pages_of_prompts(page: Page, site: Site, runs: list[RunView]) -> None:
    sides = opened(page, site, runs, other=1)  # the draft alone
    page.get_by_label("Prompts a page").click()
    page.get_by_role("option", name="50", exact=True).click()
    expect(sides).to_have_count(48)
    page.get_by_label("Not solved").check()
    expect(sides).not_to_have_count(48)
    for pair in page.locator("article.pair").all():
        expect(pair).to_contain_text("wrong")


def test_a_viewer_marks_nothing(page: Page, closed: Site) -> None:  # noqa: F811
    site = closed
    experiment = add_finished(site.repository, "Not for viewers")
    runs = list(site.repository.experiment(experiment).runs)
    sign_in(page, site, "Viewer", f"/compare?runs={runs[0].id},{runs[3].id}&baseline={runs[0].id}&tab=prompts")
    expect(page).to_have_url(re.compile("/compare"))
    settled(page)
    page.get_by_label("All", exact=True).check()
    why = re.compile("Marking an output needs the role author, and Viewer is viewer")
    for name in ("Good", "Bad", "Note"):
        button = page.locator(".side[data-run]").first.get_by_role("button", name=name)
        expect(button).to_be_disabled()
        expect(button).to_have_attribute("title", why)
    page.locator(".side[data-run]").first.press("g")
    settled(page)
    assert site.repository.marks([run.id for run in runs]) == []


@pytest.fixture
def experiment(site: Site) -> str:
    """The id of a new finished experiment."""
    return plausible.add_finished(site.repository, f"Named {HOSTILE_TOKENS}", limit=2)


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
    edit(
        page,
        "Edit name, note and tags",
        Name=f"Better {HOSTILE_TOKENS}",
        Note=f"Odd {HOSTILE_TOKENS}\nline",
        Tags=f"paper, {tag}",
    )
    expect(page.get_by_text("Saved.")).to_be_visible()
    expect(page.locator("#experiment-head h1")).to_contain_text("Better")
    expect(page.locator("#experiment-said .fsd-chip")).to_have_text([tag, "paper"])
    expect(page.locator("#experiment-said .fsd-note")).to_contain_text(HOSTILE_TOKENS)
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
