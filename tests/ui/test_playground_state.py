"""The Playground loses no job and no text, however slow the answers and quick the hands are."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Request, Route, expect

from dashboard.playground.job_panels import FORMER
from dashboard.ui.fields import pair_defaults
from tests.tools.settled import Held, go, meanwhile, settled
from tests.tools.site import Site
from tests.tools.sizes import PATIENCE
from tests.ui.test_playground import (
    HOSTILE,
    choose,
    chunk,
    claim,
    finish,
    prompt,
    questions,
    start,
    unfold_sampling,
    unfold_settings,
    worker_that_is_there,
)

pytestmark = pytest.mark.ui


QUEUE = ("playground",)


@pytest.mark.wide("test_view_in_browser.py")
def test_a_second_click_on_generate_begins_no_job_and_stop_stops_the_one_that_was_shown(page: Page, site: Site) -> None:
    go(page, f"{site.url}/playground")
    generate, stop = page.get_by_role("button", name="Generate"), page.get_by_role("button", name="Stop")
    held = Held(page, only=begins)
    generate.dblclick()
    expect(generate).to_be_disabled()
    held.wait()
    prompt(page).fill("Another prompt")
    generate.click(force=True)
    generate.press("Enter")
    held.release()
    job = claim(page, site)
    expect(stop).to_be_enabled()
    expect(generate).to_be_disabled()
    settled_polls(page)
    assert site.repository.queue_length(QUEUE) == 0
    assert job.payload["prompt"] != "Another prompt"
    stop.click()
    meanwhile(page, lambda: site.repository.cancel_requested(job.id), "the wish to stop")
    finish(site, job, "cancelled")
    expect(generate).to_be_enabled()

    first = start(page, site)
    expect(stop).to_be_enabled()
    held = Held(page, only=lambda request: questions(request) and '\\"stop\\"' in (request.post_data or ""))
    stop.click()
    held.wait()
    finish(site, first)
    held.release()
    expect(generate).to_be_enabled()
    second = start(page, site)
    expect(stop).to_be_enabled()
    settled_polls(page)
    assert not site.repository.cancel_requested(second.id)
    finish(site, second)


def settled_polls(page: Page) -> None:
    """Waits until two further questions are answered."""
    for _ in range(2):
        page.wait_for_event("response", lambda answer: questions(answer.request)).finished()


@pytest.mark.wide("test_view_in_browser.py")
def test_a_late_answer_to_the_opening_overwrites_nothing(page: Page, site: Site) -> None:
    go(page, f"{site.url}/playground")
    prompt(page).fill("The former prompt")
    former = start(page, site)
    finish(site, former, "failed", "No.")
    expect(page.get_by_text("No.", exact=True)).to_be_visible()
    tab = page.context.new_page()
    held = Held(tab, only=questions)
    tab.goto(f"{site.url}/playground")
    held.wait()
    prompt(tab).fill("A new prompt")
    tab.get_by_role("button", name="Generate").click()
    held.release()
    job = claim(page, site)
    assert job.payload["prompt"] == "A new prompt"
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE), chunk(1, HOSTILE)])
    expect(tab.locator("#lane-1 .tok")).to_have_count(len(HOSTILE))
    expect(prompt(tab)).to_have_value("A new prompt")
    finish(site, job)
    expect(tab.get_by_role("button", name="Generate")).to_be_enabled()
    tab.close()


@pytest.mark.wide("test_view_in_browser.py")
def test_an_answer_that_is_lost_cuts_no_text_and_texts_of_a_former_form_are_marked(page: Page, site: Site) -> None:
    go(page, f"{site.url}/playground")
    asked = prompt(page).input_value()
    job = start(page, site)
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE[:2], done=False)])
    expect(page.locator("#lane-1 .tok")).to_have_count(2)
    lost: list[str] = []
    seen: list[bool] = []

    def lose(route: Route) -> None:
        seen.append(questions(route.request))
        answer = route.fetch() if seen[-1] and not lost else None
        if answer is None:
            route.continue_()
        elif f"Text of setting {2}" not in answer.text():
            route.fulfill(response=answer)
        else:
            lost.append(answer.text())
            route.fulfill(status=502, body="Bad gateway")

    page.route("**/gradio_api/run/**", lose)
    meanwhile(page, lambda: any(seen), "a question whose answer can be lost: one before that is answered by then")
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE[2:]), chunk(1, HOSTILE)])
    finish(site, job)
    for lane in (1, 2):
        expect(page.locator(f"#lane-{lane} .tok")).to_have_count(len(HOSTILE))
    expect(page.locator("#verdict")).to_contain_text("their texts are identical")
    assert len(lost) == 1

    unfold_sampling(page)
    former = page.get_by_text(FORMER)
    expect(former).to_have_count(0)
    for change, back in (
        (lambda: prompt(page).fill("Another"), lambda: prompt(page).fill(asked)),
        (lambda: page.get_by_label("Temperature").fill("0.5"), lambda: page.get_by_label("Temperature").fill("0")),
        (
            lambda: page.get_by_role("button", name="Add a setting").click(),
            lambda: page.get_by_role("button", name="Remove the last").click(),
        ),
    ):
        change()
        expect(former).to_be_visible()
        back()
        expect(former).to_have_count(0)
    choose(page, "Model pair", "SmolLM2 135M with our draft")
    expect(former).to_be_visible()


@pytest.mark.wide("test_view_in_browser.py")
def test_clicks_on_the_number_of_settings_all_count_and_what_is_typed_outlasts_the_answer_to_another_choice(
    page: Page, site: Site
) -> None:
    go(page, f"{site.url}/playground")
    held = Held(page, only=questions)
    unfold_settings(page)
    more, fewer = (page.get_by_role("button", name=name) for name in ("Add a setting", "Remove the last"))
    more.dblclick()
    held.wait()
    held.release()
    expect(page.locator(".setting:visible")).to_have_count(4)
    expect(more).to_be_disabled()
    fewer.evaluate("button => { for (let i = 0; i < 2; i += 1) button.click(); }")
    expect(page.locator(".setting:visible")).to_have_count(2)

    other = pair_defaults("smollm2-135m")
    second = page.locator(".setting").nth(1)
    held = Held(page, only=questions)
    choose(page, "Model pair", "SmolLM2 135M with our draft")
    held.wait()
    prompt(page).fill("My own words.")
    second.get_by_label("Threshold").fill("0.07")
    held.release()
    expect(second.get_by_label("Draft length")).to_have_value(str(other.draft_length))
    settled(page)
    expect(prompt(page)).to_have_value("My own words.")
    expect(second.get_by_label("Threshold")).to_have_value("0.07")


@pytest.mark.wide("test_view_in_browser.py")
def test_the_form_outlasts_a_reload_the_way_back_and_a_lost_request(page: Page, site: Site) -> None:
    go(page, f"{site.url}/playground")
    choose(page, "Model pair", "SmolLM2 135M with our draft")
    expect(prompt(page)).to_have_value(re.compile("^Why is the sky blue"))
    prompt(page).fill("Kept: reload")
    page.get_by_role("button", name="Add a setting").click()
    expect(page.locator(".setting:visible")).to_have_count(3)
    unfold_settings(page)
    page.locator(".setting").nth(1).get_by_label("Threshold").fill("0.07")
    third = page.locator(".setting").nth(2)
    third.get_by_label("Rule").click()
    page.get_by_role("option", name="Speculative decoding (SD)").click()
    third.get_by_label("Draft length").fill("3")
    settled(page)
    page.reload()
    kept(page, "Kept: reload")

    prompt(page).fill("Kept: back")
    settled(page)
    go(page, f"{site.url}/runs")
    page.go_back()
    kept(page, "Kept: back")

    prompt(page).fill("Kept: lost request")
    settled(page)
    lost: list[Route] = []

    def lose(route: Route) -> None:
        if lost or not begins(route.request):
            route.continue_()
        else:
            lost.append(route)
            route.abort()

    page.route("**/gradio_api/run/**", lose)
    page.get_by_role("button", name="Generate").click()
    job = claim(page, site)  # although the page could not ask for it at first
    assert (len(lost), job.payload["prompt"]) == (1, "Kept: lost request")
    finish(site, job, "cancelled")
    kept(page, "Kept: lost request")


def kept(page: Page, asked: str) -> None:
    """The form is as it was filled in, with this prompt."""
    third = page.locator(".setting").nth(2)
    expect(page.locator(".setting:visible")).to_have_count(3)
    settled(page)
    unfold_settings(page)
    expect(prompt(page)).to_have_value(asked)
    expect(page.get_by_label("Model pair")).to_have_value("SmolLM2 135M with our draft · to fetch, 92.9 MB")
    expect(page.locator(".setting").nth(1).get_by_label("Threshold")).to_have_value("0.07")
    expect(third.get_by_label("Rule")).to_have_value("Speculative decoding (SD)")
    expect(third.get_by_label("Draft length")).to_have_value("3")
    expect(page.locator("#prompt-text")).to_contain_text("chat template")  # the hint and the examples of the pair
    page.get_by_label("Example", exact=True).click()
    expect(page.get_by_role("option").first).to_contain_text("Why is the sky blue")
    page.keyboard.press("Escape")
    page.locator("h1").click()


__all__ = ["worker_that_is_there"]  # a fixture, which every test here uses


def begins(request: Request) -> bool:
    """Whether it asks for a job."""
    return questions(request) and "generate" in (request.post_data or "")


@pytest.mark.wide("test_playground.py")
@pytest.mark.parametrize("lost", ["question", "answer", "nothing"])
def test_a_reload_right_after_the_click_finds_the_job(page: Page, site: Site, lost: str) -> None:
    """The page is gone before its question has arrived, before the answer has, or just then."""
    asked: list[Route] = []

    def hold(route: Route) -> None:
        if asked or not begins(route.request):
            route.continue_()
            return
        asked.append(route)
        if lost != "question":
            answer = route.fetch(timeout=1000 * PATIENCE)
            if lost == "nothing":
                route.fulfill(response=answer)

    page.goto(f"{site.url}/playground")
    settled(page)
    prompt(page).fill(f"Lost: {lost}")
    page.route("**/gradio_api/run/**", hold)
    page.get_by_role("button", name="Generate").click()
    meanwhile(page, lambda: asked, "the question")
    if lost != "question":
        meanwhile(page, lambda: site.repository.queue_length(("playground",)), "the job")
    page.reload(wait_until="commit")
    if lost == "question":  # it was on its way, and comes when the page that sent it is gone
        page.request.fetch(asked[0].request, timeout=1000 * PATIENCE)
    job = claim(page, site)
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE), chunk(1, HOSTILE)])
    expect(page.locator("#lane-1 .tok")).to_have_count(len(HOSTILE))
    expect(prompt(page)).to_have_value(f"Lost: {lost}")
    assert site.repository.queue_length(("playground",)) == 0  # it was begun once
    finish(site, job)
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    page.reload()
    expect(page.locator("#lane-2 .tok")).to_have_count(len(HOSTILE))  # and again, from what is remembered


@pytest.mark.wide("test_playground.py")
def test_a_refused_click_leaves_the_last_job_where_it_was(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/playground")
    page.get_by_role("button", name="Generate").click()
    job = claim(page, site)
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE), chunk(1, HOSTILE)])
    finish(site, job)
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    prompt(page).fill(" ")
    page.get_by_role("button", name="Generate").click()
    expect(page.get_by_text("The prompt is empty")).to_be_visible()
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    page.reload()
    expect(page.locator("#lane-1 .tok")).to_have_count(len(HOSTILE))
    settled(page)
    expect(page.get_by_text("The prompt is empty")).to_have_count(0)  # what was answered is not asked again
