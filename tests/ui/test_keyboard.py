"""The main ways through the pages by the keyboard alone: everything is reached with Tab, and shows that it is."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.tools.every_page import every_page
from tests.tools.plausible import add_finished
from tests.tools.settled import settled
from tests.tools.site import Site
from tests.tools.sizes import some
from tests.ui.test_playground import HOSTILE, chunk, claim, finish

pytestmark = pytest.mark.ui
MOST_STEPS = 400
# What has the focus: its name, and whether a line or a shadow of its own or of what it stands in shows that.
FOCUSED = """() => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  const shows = (one) => {
    const style = getComputedStyle(one);
    return (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== 'none';
  };
  const around = [e, e.parentElement, e.closest('label'), e.closest('.wrap-inner')?.parentElement].filter(Boolean);
  const box = e.getBoundingClientRect();
  const label = e.labels?.[0]?.innerText || '';
  e.dataset.step ??= `${window.steps = (window.steps ?? 0) + 1}`;
  return {
    step: e.dataset.step, shown: around.some(shows), seen: box.width > 0 && box.height > 0,
    name: (e.getAttribute('aria-label') || label || e.innerText || e.value || e.tagName).trim().replace(/\\s+/g, ' '),
    tag: e.tagName.toLowerCase() + '.' + e.className,
  };
}"""
# What can be clicked or changed with the mouse, and is not switched off or hidden.
OPERABLE = """() => [...document.querySelectorAll(
    'a[href], button, input, select, textarea, summary, [role=button], [role=checkbox], [tabindex="0"]')]
  .filter((e) => !e.disabled && e.type !== 'hidden' && e.tabIndex >= 0 && e.checkVisibility({visibilityProperty: true})
    && e.getBoundingClientRect().width > 1 && !e.closest('.modebar') && !e.matches('[type=radio]:not(:checked)'))
  .filter((e) => !e.dataset.step).map((e) => e.outerHTML.slice(0, 120))"""


def tab_to(page: Page, name: str) -> None:
    """Steps with Tab until something of this name has the focus."""
    for _ in range(MOST_STEPS):
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUSED)
        if found and re.search(name, found["name"]):
            assert found["shown"], f"{name} does not show that it has the focus: {found}"
            return
    pytest.fail(f"Tab does not reach {name}.")


def lap(page: Page) -> None:
    """Steps through the page with Tab, until it comes to where it was before."""
    steps: list[str] = []
    for _ in range(MOST_STEPS):
        page.keyboard.press("Tab")
        if (found := page.evaluate(FOCUSED)) is None:
            continue  # past the last one, and before the first
        assert found["step"] not in steps[-3:], f"Tab is caught at {found}"
        if found["step"] in steps:
            return
        assert found["seen"], f"what has the focus is not to be seen: {found}"
        assert found["shown"], f"the focus is not to be seen: {found}"
        steps.append(found["step"])
    pytest.fail("Tab never leaves the page.")


@pytest.fixture(scope="module")
def pages(site: Site) -> dict[str, str]:
    add_finished(site.repository)
    return every_page(site.repository)


@pytest.mark.parametrize(
    "name",
    some(["playground", "experiments", "compare", "runs", "run", "settings", "setting", "review", "use", "proposal",
          "reports", "theory"], "proposal"),
)  # fmt: skip
def test_tab_reaches_everything_shows_where_it_is_and_gets_out_again(
    page: Page, site: Site, pages: dict[str, str], name: str
) -> None:
    page.goto(site.url + pages[name])
    settled(page)
    lap(page)
    if page.evaluate(OPERABLE):  # what was drawn anew meanwhile
        lap(page)
    assert not page.evaluate(OPERABLE), "not reached"


@pytest.mark.wide
def test_the_playground_is_used_by_the_keyboard(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/playground")
    settled(page)  # a field that has just appeared is given what it was built with once more
    tab_to(page, "^Prompt")
    page.keyboard.press("Control+A")
    page.keyboard.type("By keyboard")
    tab_to(page, "^Sampling")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Temperature")).to_be_visible()
    tab_to(page, "^Temperature")
    page.keyboard.type("0.5")
    tab_to(page, "^Generate")
    page.keyboard.press("Enter")
    job = claim(page, site)
    assert (job.payload["prompt"], job.payload["settings"][0]["sampling"]["temperature"]) == ("By keyboard", 0.5)
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE), chunk(1, HOSTILE)])
    expect(page.locator("#lane-1 .tok")).to_have_count(len(HOSTILE))
    tab_to(page, "acceptance rate")
    expect(page.locator("#fsd-about")).to_contain_text("Drafted tokens accepted")
    tab_to(page, "img src")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tok-detail")).to_contain_text("rule is lenient")
    page.keyboard.press("Escape")
    expect(page.locator("#tok-detail")).to_be_hidden()
    finish(site, job)


@pytest.mark.wide
def test_runs_are_chosen_and_compared_by_the_keyboard(page: Page, site: Site, pages: dict[str, str]) -> None:
    page.goto(f"{site.url}/runs")
    expect(page.locator("#runs tbody tr")).to_have_count(7)
    tab_to(page, "^Select Target alone")
    page.keyboard.press("Space")
    page.keyboard.press("Shift+Tab")
    tab_to(page, "^Select SD")
    page.keyboard.press("Space")
    for _ in range(MOST_STEPS):
        page.keyboard.press("Shift+Tab")
        if "Compare selected (2)" in (page.evaluate(FOCUSED) or {"name": ""})["name"]:
            break
    page.keyboard.press("Enter")
    table = page.get_by_role("table", name="Answers of the runs")
    expect(table.locator("tbody tr")).to_have_count(2)
    tab_to(page, "^Runs 2 runs")
    page.keyboard.press("Enter")
    tab_to(page, "^Search runs")
    page.keyboard.type("draft alone")
    expect(page.locator(".pick label:visible")).to_have_count(1)
    tab_to(page, "^Draft alone")
    page.keyboard.press("Space")
    expect(table.locator("tbody tr")).to_have_count(3)
    expect(page.locator(".pick-said")).to_have_text("3 runs chosen")
    expect(page).to_have_url(re.compile("runs=[0-9a-f]{32},[0-9a-f]{32},[0-9a-f]{32}"))
    tab_to(page, "^Speed")
    expect(page.locator("#fsd-about")).to_contain_text("Times as fast as the baseline")
    expect(page.get_by_role("table", name="Metrics of the runs").locator("tbody tr")).to_have_count(3)
    tab_to(page, "^Settings")
    page.keyboard.press("Space")
    expect(page.get_by_role("table", name="Settings of the runs").locator("tbody tr")).to_have_count(3)
    expect(page.get_by_role("table", name="Metrics of the runs")).to_have_count(0)


@pytest.mark.wide
def test_an_experiment_is_begun_and_deleted_by_the_keyboard(page: Page, site: Site, pages: dict[str, str]) -> None:
    page.goto(f"{site.url}/experiments")
    expect(page.get_by_text("= 2,400 generations")).to_be_visible()
    tab_to(page, "^Name")
    page.keyboard.type("Typed")
    tab_to(page, "^Prompts")
    page.keyboard.type("3")
    tab_to(page, "^Start experiment")
    page.keyboard.press("Enter")
    card = page.locator("article.exp", has_text="Typed")
    expect(card).to_contain_text("waiting")
    tab_to(page, "^Cancel")
    page.keyboard.press("Enter")
    expect(card).to_contain_text("cancelled")
    tab_to(page, "^Delete")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Delete the experiment “Typed”")
    tab_to(page, "^Delete")
    page.keyboard.press("Enter")
    expect(card).to_have_count(0)


@pytest.mark.wide
def test_a_use_is_made_by_the_keyboard(page: Page, site: Site, pages: dict[str, str]) -> None:
    page.goto(f"{site.url}/review")
    tab_to(page, "^Name")
    page.keyboard.type("Typed by hand")
    tab_to(page, "^Make the use")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Uses").locator("tbody")).to_contain_text("Typed by hand")
