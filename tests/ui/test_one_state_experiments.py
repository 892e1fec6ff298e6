"""The page of experiments shows one state, however slow the answers and quick the hands are."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, Page, Request, Route, expect

from dashboard.ui.fields import pair_defaults
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.storage.records import ExperimentView
from tests.tools.folds import unfold
from tests.tools.plausible import sweep
from tests.tools.rule_boxes import rule_box
from tests.tools.settled import Held, go, polled, settled
from tests.tools.site import Site

pytestmark = pytest.mark.ui


def opened(page: Page, site: Site, query: str = "") -> None:
    go(page, f"{site.url}/experiments{query}")
    expect(page.locator(".exp-size").first).to_contain_text("generations")


def new_name() -> str:
    return f"State-{uuid4().hex[:12]}"


def cancelled(site: Site) -> str:
    """The name of a new cancelled experiment."""
    id = site.repository.create_experiment(sweep(name := new_name()))
    site.repository.request_cancel(id)
    return name


def named(site: Site, name: str) -> list[ExperimentView]:
    return [view for view in site.repository.experiments() if view.name == name]


def card(page: Page, name: str) -> Locator:
    return page.locator("article.exp", has_text=name)


def field(page: Page, label: str) -> Locator:
    return page.get_by_label(label, exact=label not in ("Thresholds", "Draft lengths"))  # these have a hint


def choose(page: Page, label: str, option: str) -> None:
    field(page, label).click()
    # a pair that is not here says so behind its title
    page.get_by_role("option", name=re.compile(rf"^{re.escape(option)}( · .*)?$")).click()


def click_twice(page: Page, button: Locator, answered: Locator) -> None:
    """A double click whose second click comes when the first is answered, however long this machine takes."""
    button.click(trial=True)  # waits until the page has stopped moving under it
    box = button.bounding_box()
    assert box is not None
    place = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.evaluate("Object.defineProperty(Event.prototype, 'timeStamp', {get: () => 0, configurable: true})")
    page.mouse.click(*place)
    expect(answered).to_be_visible()
    settled(page)
    page.mouse.click(*place)
    settled(page)


@pytest.mark.wide
def test_a_double_click_archives_one_card(page: Page, site: Site) -> None:
    names = [cancelled(site) for _ in range(2)]
    opened(page, site)
    archive = card(page, names[1]).get_by_role("button", name="Archive")
    archive.scroll_into_view_if_needed()
    click_twice(page, archive, page.get_by_text(f"{names[1]} is archived"))
    expect(card(page, names[1])).to_have_count(0)
    polled(page, 1.0)
    expect(card(page, names[0])).to_be_visible()
    assert [named(site, name)[0].archived for name in names] == [False, True]


@pytest.mark.wide
def test_a_double_click_starts_one_experiment(page: Page, site: Site) -> None:
    opened(page, site)
    count = len(site.repository.experiments(1000))
    field(page, "Name").fill(name := new_name())
    start = page.get_by_role("button", name="Start experiment")
    start.scroll_into_view_if_needed()
    click_twice(page, start, card(page, name))
    assert len(site.repository.experiments(1000)) == count + 1


@pytest.mark.wide
def test_a_double_click_finds_one_setting(page: Page, site: Site) -> None:
    opened(page, site)
    field(page, "Name").fill(name := new_name())
    start = page.get_by_role("button", name="Find the setting")
    start.scroll_into_view_if_needed()
    click_twice(page, start, card(page, name))
    assert [type(view.config) for view in named(site, name)] == [CalibrationConfig]


def test_an_experiment_whose_answer_is_lost_is_started_once(page: Page, site: Site) -> None:
    opened(page, site)
    field(page, "Name").fill(name := new_name())
    settled(page)
    lost: list[Route] = []

    def lose(route: Route) -> None:
        if lost or name not in str(route.request.post_data) or '\\"start\\"' not in str(route.request.post_data):
            route.continue_()
            return
        lost.append(route)
        route.fetch()
        route.fulfill(status=502)

    page.route("**/gradio_api/run/**", lose)
    page.get_by_role("button", name="Start experiment").click()
    expect(page.get_by_text("Added: ")).to_be_visible()
    expect(card(page, name)).to_have_count(1)
    assert lost
    assert len(named(site, name)) == 1


@pytest.mark.wide
def test_what_is_chosen_for_the_list_outlasts_a_late_answer(page: Page, site: Site) -> None:
    name = cancelled(site)
    opened(page, site)
    card(page, name).get_by_role("button", name="Archive").click()
    expect(card(page, name)).to_have_count(0)
    site.repository.create_experiment(sweep(other := new_name()))
    first = iter([True])
    held = Held(page, answers=True, only=lambda request: next(first, False))
    held.wait()  # the clock's, without archived experiments
    page.get_by_label("Show archived").check()
    page.wait_for_timeout(300)  # in which nothing may overtake it
    held.release()
    expect(card(page, name)).to_be_visible()
    expect(card(page, other)).to_be_visible()
    polled(page, 1.0)
    expect(card(page, name)).to_be_visible()


@pytest.mark.wide
def test_two_experiments_are_cancelled_while_the_first_is_answered(page: Page, site: Site) -> None:
    names = [new_name(), new_name()]
    ids = [site.repository.create_experiment(sweep(name)) for name in names]
    opened(page, site)
    held = Held(page)
    for name in names:
        card(page, name).get_by_role("button", name="Cancel").click()
        held.wait()
    held.release()
    for name in names:
        expect(card(page, name)).to_contain_text("cancelled")
    assert [site.repository.experiment(id).status for id in ids] == ["cancelled"] * 2


@pytest.mark.wide
def test_the_name_of_the_next_experiment_stays(page: Page, site: Site) -> None:
    opened(page, site)
    field(page, "Name").fill(name := new_name())
    settled(page)
    held = Held(page, answers=True)
    page.get_by_role("button", name="Start experiment").click()
    held.wait()
    field(page, "Name").fill("The next one")
    held.release()
    expect(card(page, name)).to_be_visible()
    polled(page, 1.0)
    expect(field(page, "Name")).to_have_value("The next one")


@pytest.mark.wide
def test_what_is_typed_after_another_pair_was_chosen_stays(page: Page, site: Site) -> None:
    opened(page, site)
    other = pair_defaults("smollm2-135m")
    held = Held(page, answers=True)
    choose(page, "Model pair", "SmolLM2 135M with our draft")
    held.wait()
    field(page, "Thresholds").fill("0.07")
    field(page, "Prompts").fill("3")
    held.release()
    expect(field(page, "Draft lengths")).to_have_value(other.lengths)  # nobody typed there
    polled(page, 1.0)
    expect(field(page, "Thresholds")).to_have_value("0.07")
    expect(field(page, "Prompts")).to_have_value("3")
    expect(field(page, "Task")).to_have_value("Everyday prompts")


@pytest.mark.wide
def test_a_bound_stays_while_another_goal_is_chosen(page: Page, site: Site) -> None:
    opened(page, site)
    unfold(page, "More")
    field(page, "Accuracy margin").fill("12.5")
    choose(page, "Goal", "At least so many percent of drafted tokens accepted")
    expect(field(page, "Percent")).to_have_value("90")
    expect(field(page, "Accuracy margin")).to_be_hidden()
    choose(page, "Goal", "Accuracy within so many points of the target")
    expect(field(page, "Accuracy margin")).to_have_value("12.5")


def fill_in(page: Page, name: str) -> None:
    choose(page, "Model pair", "SmolLM2 135M with our draft")
    expect(field(page, "Task")).to_have_value("Everyday prompts")
    choose(page, "Task", "Short word problems")
    field(page, "Name").fill(name)
    field(page, "Thresholds").fill("0.07, 0.2")
    rule_box(page, "Block").uncheck()
    expect(page.locator(".exp-size").first).to_contain_text("× 1 seed")
    settled(page)


def is_filled_in(page: Page, name: str) -> None:
    expect(field(page, "Name")).to_have_value(name)
    expect(field(page, "Model pair")).to_have_value("SmolLM2 135M with our draft · to fetch, 92.9 MB")
    expect(field(page, "Task")).to_have_value("Short word problems")
    expect(field(page, "Thresholds")).to_have_value("0.07, 0.2")
    expect(rule_box(page, "Block")).not_to_be_checked()
    settled(page)
    expect(field(page, "Task")).to_have_value("Short word problems")


@pytest.mark.wide
def test_a_form_outlasts_a_lost_question_a_reload_and_the_way_back(page: Page, site: Site) -> None:
    opened(page, site)
    name = new_name()
    fill_in(page, name)
    lost: list[Request] = []

    def lose(route: Route) -> None:
        lost.append(route.request)
        route.abort()

    with page.expect_event("requestfailed"):
        page.route("**/gradio_api/run/**", lose, times=1)
    polled(page, 1.0)
    assert len(lost) == 1
    is_filled_in(page, name)
    page.reload()
    is_filled_in(page, name)
    go(page, f"{site.url}/runs")
    page.go_back()
    is_filled_in(page, name)
    page.get_by_role("button", name="Start experiment").click()
    expect(card(page, name)).to_be_visible()
    page.reload()
    expect(field(page, "Thresholds")).to_have_value("0.07, 0.2")
    expect(field(page, "Name")).to_have_value("")  # it has been used
    opened(page, site)
    expect(field(page, "Thresholds")).to_have_value(pair_defaults("smollm2-135m").thresholds)
    expect(field(page, "Task")).to_have_value("Short word problems")  # pair and task stay
    (experiment,) = named(site, name)
    assert {(run.pair, run.task) for run in experiment.runs} == {("smollm2-135m", "short-problems")}


@pytest.mark.wide
def test_a_form_that_a_link_fills_in_keeps_what_is_changed(page: Page, site: Site) -> None:
    run = site.repository.experiment(site.repository.create_experiment(sweep("Like it", seeds=(3,)))).runs[1].id
    opened(page, site, f"?like={run}")
    expect(field(page, "Seeds")).to_have_value("3")
    field(page, "Seeds").fill("4, 5")
    field(page, "Prompts").fill("5")
    expect(page.locator(".exp-size").first).to_contain_text("2 seeds × 5 prompts")
    page.reload()
    expect(page.locator(".exp-size").first).to_contain_text("2 seeds × 5 prompts")
    polled(page, 1.0)
    expect(field(page, "Seeds")).to_have_value("4, 5")
