"""Small things that every page does alike: focus, sorting, progress, what folds, and what a narrow window clips."""

from __future__ import annotations

from contextlib import closing

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.tools.chromium import BROWSER_PATIENCE
from tests.tools.plausible import add_finished, sweep
from tests.tools.settled import settled, watch
from tests.tools.site import Site
from tests.ui.test_playground import worker_that_is_there

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_components.py")]
__all__ = ["worker_that_is_there"]  # a fixture, which every test here uses
RINGS = """e => {
  const drawn = (one) => {
    const style = getComputedStyle(one);
    return [style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0, style.boxShadow !== 'none'];
  };
  const rings = [];
  for (let one = e; one && !one.classList.contains('form'); one = one.parentElement) rings.push(...drawn(one));
  return rings.filter(Boolean).length;
}"""


def inside(part: Locator, width: int) -> bool:
    """Whether the whole of it lies in a window of this width."""
    box = part.bounding_box()
    return box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width


def test_runs_are_sorted_by_every_column_and_nothing_is_clipped_in_a_narrow_window(page: Page, site: Site) -> None:
    repository = site.repository
    add_finished(repository, "Later in the alphabet")
    add_finished(repository, "Before it")
    page.set_viewport_size({"width": 1024, "height": 800})
    page.goto(f"{site.url}/runs")
    headings = page.locator("#runs thead th")
    expect(headings).to_have_count(12)
    expect(headings.locator("button.fsd-sort")).to_have_count(11)  # all but that of the boxes
    for label in ("Show archived", "Show calibrations"):
        text = page.get_by_text(label, exact=True)
        assert inside(text, 1024)
        assert text.evaluate("e => e.getBoundingClientRect().height") < 30, f"{label} is broken into lines"

    page.get_by_role("button", name="Sort: Experiment, A to Z").click()
    expect(page.locator("#runs tbody tr").first).to_contain_text("Before it")
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Experiment")
    expect(page.get_by_label("Order")).to_have_value("Experiment, A to Z")
    expect(page).to_have_url(f"{site.url}/runs?sort=experiment")
    for _ in range(2):  # the focus stays where it was, so it is pressed again by the keyboard and by the mouse
        again = page.get_by_role("button", name="Sort: Experiment, Z to A")
        expect(again).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#runs tbody tr").first).to_contain_text("Later in the alphabet")
        again = page.get_by_role("button", name="Sort: Experiment, A to Z")
        expect(again).to_be_focused()
        again.click()
        expect(page.locator("#runs tbody tr").first).to_contain_text("Before it")
    for heading in ("Pair", "Task", "Seed", "Prompts", "Accuracy", "s/answer", "Acceptance rate", "Status", "Created"):
        button = page.locator("#runs thead th", has_text=heading).locator(".fsd-sort")
        button.click()
        expect(page.locator("th[aria-sort]")).to_contain_text(heading)
    settled(page)


def test_a_choice_keeps_the_one_ring_of_the_focus_and_what_is_closed_points_right(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/experiments")
    pair, task, options = (
        page.get_by_label("Model pair"),
        page.get_by_label("Task", exact=True),
        page.get_by_role("option"),
    )
    pair.click()
    options.nth(1).click()
    expect(pair).to_be_focused()
    expect(options).to_have_count(0)
    pair.click()  # the list opens again
    options.nth(0).click()
    expect(pair).to_be_focused()
    page.keyboard.press("Tab")
    expect(task).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(task).to_be_focused()
    expect(options).to_have_count(0)
    for field in (task, page.get_by_label("Name", exact=True), page.get_by_label("Prompts", exact=True)):
        field.focus()
        assert field.evaluate(RINGS) == 1, field
        page.keyboard.press("Escape")

    icon = page.locator(".label-wrap", has_text="Your own tasks").locator(".icon")
    expect(icon).to_have_css("transform", "matrix(0, -1, 1, 0, 0, 0)")  # ▼, a quarter turned against the clock
    assert page.evaluate("getComputedStyle(document.documentElement).scrollbarGutter") == "stable"
    page.locator(".label-wrap", has_text="Your own tasks").click()
    chooser = page.get_by_label("File of prompts").evaluate(
        "e => { const s = getComputedStyle(e, '::file-selector-button'); return [s.borderRadius, s.color]; }"
    )
    assert chooser == page.get_by_role("button", name="Check").evaluate(
        "e => { const s = getComputedStyle(e); return [s.borderRadius, s.color]; }"
    )


def test_what_is_measured_is_a_line_on_every_page(page: Page, site: Site) -> None:
    repository = site.repository
    experiment = repository.experiment(repository.create_experiment(sweep("Under way"), enqueue=False))
    repository.report_worker(1, "host", "cpu", "SD · γ 5: prompt 1 of 24")
    total = sum(run.prompts_total for run in experiment.runs)
    page.goto(f"{site.url}/theory")
    expect(page.locator(".fsd-worker")).to_contain_text("prompt 1 of 24")
    expect(page.get_by_role("progressbar")).to_have_count(0)  # nothing has begun
    repository.start_run(experiment.runs[0].id, {})
    line = page.get_by_role("progressbar", name=f"0 of {total} prompts measured")
    for path in ("/theory", "/runs", "/review"):
        page.goto(site.url + path)
        expect(line).to_be_visible()
        assert line.evaluate("e => e.getBoundingClientRect().top") == 0


def test_a_page_is_in_english_and_shows_its_answer_before_gradios_scripts_run(browser: Browser, site: Site) -> None:
    with closing(browser.new_context(locale="de-DE")) as context:
        page = context.new_page()
        held: list[Route] = []
        page.route("**/assets/index-*.js", lambda route: held.append(route))
        page.goto(site.url, wait_until="commit")
        at_first = "document.querySelector('#fsd-first')?.getBoundingClientRect().height ?? 0"
        page.wait_for_function(f"{at_first} > 300")
        for one in held:
            one.continue_()
        expect(page.get_by_role("link", name="Try it on a prompt")).to_be_visible()
        expect(page.locator("#fsd-first")).to_have_count(0)
        assert page.evaluate("document.documentElement.lang") == "en"


def test_a_touched_figure_has_no_bar_over_its_title(browser: Browser, site: Site) -> None:
    add_finished(site.repository, "Touched")
    with closing(
        browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    ) as profile:
        profile.set_default_timeout(BROWSER_PATIENCE)
        watch(profile)
        page = profile.new_page()
        page.goto(f"{site.url}/theory")
        expect(page.locator(".js-plotly-plot .gtitle, .js-plotly-plot .main-svg").first).to_be_visible()
        bars = page.locator(".modebar-container")
        assert bars.count() > 0
        assert not any(bar.is_visible() for bar in bars.all())
