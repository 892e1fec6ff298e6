"""Compare shows one state, however slow the answers and quick the hands are."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, Request, expect

from dashboard.compare.compare_page import REFRESH_SECONDS
from fsd_core.storage.records import RunView
from tests.tools.folds import open_tab
from tests.tools.plausible import add_finished, do_prompts, finish, sweep
from tests.tools.settled import Held, go, polled, settled
from tests.tools.site import Site

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_compare_in_one_state.py")]


@pytest.fixture(scope="module")
def experiment(site: Site) -> str:
    return add_finished(site.repository, "One state")


@pytest.fixture(scope="module")
def runs(site: Site, experiment: str) -> list[RunView]:
    return list(site.repository.experiment(experiment).runs)


def of_the_page(request: Request) -> bool:
    """Whether the page asks, and not the header."""
    return "wanted" in (request.post_data or "")


def after(count: int) -> Callable[[Request], bool]:
    """What the page asks after so many questions."""
    questions: list[Request] = []

    def later(request: Request) -> bool:
        questions.extend([request] * of_the_page(request))
        return of_the_page(request) and len(questions) > count

    return later


def address(site: Site, *runs: RunView, more: str = "") -> str:
    return f"{site.url}/compare?runs={','.join(run.id for run in runs)}&baseline={runs[0].id}{more}"


def rows(page: Page) -> Locator:
    return page.get_by_role("table", name="Answers of the runs").locator("tbody tr")


def baseline(page: Page) -> Locator:
    return rows(page).and_(page.locator(".baseline"))


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


def tick(page: Page, run: RunView) -> None:
    page.locator(f".pick input[value='{run.id}']").click()


def unfold(page: Page) -> None:
    page.locator(".pick summary").click()


def followed(page: Page, *runs: RunView) -> None:
    """The table, the ticks and the address are of these runs."""
    expect(rows(page)).to_have_count(len(runs))
    expect(page.locator(".pick-said")).to_have_text(f"{len(runs)} runs chosen")
    expect(page.locator(".pick input:checked")).to_have_count(len(runs))
    expect(page).to_have_url(re.compile("runs=" + ",".join(run.id for run in runs) + "&"))
    expect(page.locator("#compare-link input, #compare-link textarea")).to_have_value(page.url)


def answers_relative_to(page: Page) -> str:
    """What is written at a mark of the figure of the answers: the name of the baseline among it."""
    return page.locator(".js-plotly-plot", has_text="Answers relative to the baseline").evaluate(
        "figure => figure.data[0].hovertext[0]"
    )


def test_a_run_that_is_ticked_meanwhile_counts_and_ticks_and_an_experiment_take_each_other_s_place(
    page: Page, site: Site, runs: list[RunView]
) -> None:
    go(page, address(site, *runs[:2]))
    unfold(page)
    held = Held(page, only=of_the_page)
    tick(page, runs[2])
    held.wait()
    tick(page, runs[3])
    page.wait_for_timeout(500)  # longer than the list waits for another tick
    held.release()
    followed(page, *runs[:4])
    settled(page)
    followed(page, *runs[:4])

    held = Held(page, only=of_the_page)
    tick(page, runs[4])
    held.wait()
    page.get_by_label("Whole experiment").click()
    page.get_by_role("option", name="One state").click()
    held.release()
    followed(page, *runs)
    unfold(page)
    tick(page, runs[0])
    followed(page, *runs[1:])
    expect(page.get_by_label("Whole experiment")).to_have_value("")
    expect(page.get_by_label("Baseline", exact=True)).to_have_value(runs[1].label)
    page.get_by_label("Whole experiment").click()
    page.get_by_role("option", name="One state").click()  # once more
    followed(page, *runs)


def test_the_later_choice_of_a_baseline_counts_for_table_and_figures_that_are_yet_to_come_or_opened_meanwhile(
    page: Page, site: Site, experiment: str, runs: list[RunView]
) -> None:
    go(page, f"{site.url}/compare?experiment={experiment}")
    held = Held(page, only=of_the_page)
    choose(page, "Baseline", runs[2].label)
    held.wait()
    choose(page, "Baseline", runs[3].label)
    held.release()
    settled(page)
    expect(baseline(page)).to_contain_text(runs[3].label)
    expect(page.get_by_label("Baseline", exact=True)).to_have_value(runs[3].label)
    expect(page).to_have_url(re.compile(f"baseline={runs[3].id}"))
    assert f"that of {runs[3].label}" in answers_relative_to(page)

    held = Held(page, only=after(1))
    choose(page, "Baseline", runs[2].label)
    held.wait()  # for the figures
    expect(baseline(page)).to_contain_text(runs[2].label)
    choose(page, "Baseline", runs[4].label)
    held.release()
    settled(page)
    expect(baseline(page)).to_contain_text(runs[4].label)
    assert f"that of {runs[4].label}" in answers_relative_to(page)

    open_tab(page, "Prompts")
    expect(page.get_by_label("Run A", exact=True)).to_have_value(runs[4].label)
    held = Held(page, only=of_the_page)
    choose(page, "Baseline", runs[2].label)
    held.wait()
    page.get_by_role("radio", name="Figures", exact=True).check()
    choose(page, "Baseline", runs[3].label)
    held.release()
    settled(page)
    expect(baseline(page)).to_contain_text(runs[3].label)
    assert f"that of {runs[3].label}" in answers_relative_to(page)


def test_a_margin_is_used_as_it_is_typed(page: Page, site: Site, runs: list[RunView]) -> None:
    go(page, address(site, runs[1], runs[0], runs[2]))  # against the draft alone, which nothing is worse than
    held = Held(page, only=of_the_page)
    margin = page.get_by_label("Margin", exact=True)
    margin.press("Control+A")
    margin.press("1")
    held.wait()
    margin.press_sequentially("2.5")
    held.release()
    expect(rows(page).locator("[title*='within 12.5 points']").first).to_be_visible()
    settled(page)
    expect(margin).to_have_value("12.5")
    expect(page).to_have_url(re.compile("margin=12.5"))


@pytest.mark.parametrize("prompt", [False, True])
def test_a_filter_that_is_chosen_before_the_prompts_have_come_is_theirs(
    page: Page, site: Site, runs: list[RunView], prompt: bool
) -> None:
    held = Held(page, answers=True, only=after(2))  # the answer and the picture
    more = f"&a={runs[0].id}&b={runs[3].id}&prompt=8" if prompt else "&tab=prompts"
    page.goto(address(site, runs[0], runs[3], more=more))
    held.wait()
    filter = "Marked" if prompt else "All"
    page.get_by_label(filter, exact=True).check()
    held.release()
    expect(page.get_by_text("No prompt of this kind" if prompt else "24 prompts of 24")).to_be_visible()
    settled(page)
    expect(page.get_by_label(filter, exact=True)).to_be_checked()
    expect(page.locator("article.pair")).to_have_count(0 if prompt else 5)


def test_a_late_look_at_runs_under_way_keeps_the_runs_that_were_ticked_meanwhile(page: Page, site: Site) -> None:
    repository = site.repository
    experiment = repository.create_experiment(sweep("Late"), enqueue=False)
    under_way = list(repository.experiment(experiment).runs)
    go(page, address(site, *under_way[:2]))
    unfold(page)
    held = Held(page, answers=True, only=of_the_page)
    do_prompts(repository, under_way[0], 6)
    polled_answer = baseline(page).filter(has_text="6 of 24")
    held.wait()  # the clock's
    page.locator("fieldset", has_text="Late").get_by_role("button", name="All").click()
    page.wait_for_timeout(500)
    held.release()
    followed(page, *under_way)
    expect(polled_answer).to_be_visible()
    polled(page, REFRESH_SECONDS)
    followed(page, *under_way)
    for run in under_way:
        finish(repository, run)
    expect(page.locator(".fsd-notice.warn")).to_have_count(0)  # the clock goes on


def all_prompts(page: Page, site: Site, *runs: RunView) -> Locator:
    """The outputs of the first page of all prompts, without a mark."""
    for mark in site.repository.marks([run.id for run in runs]):
        site.repository.mark(mark.run_id, mark.position, mark.who, None)
    go(page, address(site, *runs, more="&tab=prompts"))
    page.get_by_label("All", exact=True).check()
    expect(page.get_by_text("24 prompts of 24, 1 to 5 shown.")).to_be_visible()
    settled(page)
    return page.locator(".side[data-run]")


def test_marks_keys_and_pages_that_are_turned_all_count_while_an_answer_is_late(
    page: Page, site: Site, runs: list[RunView]
) -> None:
    sides = all_prompts(page, site, runs[0], runs[4])
    sides.first.focus()
    held = Held(page, only=of_the_page)
    for _ in range(4):
        page.keyboard.press("g")
        page.keyboard.press("j")
    held.wait()
    held.release()
    for i in range(4):
        expect(sides.nth(2 * i).get_by_role("button", name="Good")).to_have_attribute("aria-pressed", "true")
    expect(sides.nth(8)).to_be_focused()
    marks = site.repository.marks([runs[0].id])
    assert [(mark.position, mark.verdict) for mark in marks] == [(0, "good"), (1, "good"), (2, "good"), (3, "good")]
    settled(page)

    sides.nth(9).focus()
    held = Held(page, only=of_the_page)
    page.keyboard.press("j")
    held.wait()
    page.keyboard.press("j")
    page.keyboard.press("j")
    held.release()
    expect(page.get_by_text("24 prompts of 24, 6 to 10 shown.")).to_be_visible()
    expect(sides.nth(4)).to_be_focused()
    settled(page)

    held = Held(page, only=of_the_page)
    page.get_by_role("button", name="Next prompts").click()
    held.wait()
    page.get_by_role("button", name="Next prompts").click()
    held.release()
    expect(page.get_by_text("24 prompts of 24, 16 to 20 shown.")).to_be_visible()
    settled(page)
    expect(page.locator("article.pair").first).to_contain_text("Prompt 16,")


def test_good_that_is_pressed_in_two_tabs_or_twice_stays(page: Page, site: Site, runs: list[RunView]) -> None:
    other = page.context.new_page()
    tabs = [all_prompts(tab, site, runs[0], runs[5]) for tab in (page, other)]
    for sides in tabs:
        good = sides.nth(1).get_by_role("button", name="Good")
        good.click()
        expect(good).to_have_attribute("aria-pressed", "true")
    again = tabs[0].nth(3).get_by_role("button", name="Good")
    again.dblclick()
    expect(again).to_have_attribute("aria-pressed", "true")
    settled(page)
    expect(again).to_have_attribute("aria-pressed", "true")
    marks = site.repository.marks([runs[5].id])
    assert [(mark.position, mark.verdict) for mark in marks] == [(0, "good"), (1, "good")]


def test_a_link_s_prompt_that_cannot_be_shown_is_named(page: Page, site: Site, runs: list[RunView]) -> None:
    go(page, address(site, *runs[:2], more=f"&a={runs[0].id}&b=neither&prompt=8"))
    expect(page.locator(".fsd-notice.warn").first).to_contain_text("these runs are not compared: neither.")
    go(page, address(site, *runs[:2], more=f"&a={runs[0].id}&b={runs[1].id}&prompt=99"))
    expect(page.locator(".fsd-notice.warn")).to_contain_text("have no prompt 99 in common")
