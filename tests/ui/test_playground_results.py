"""What the Playground tells of a result, by touch and by keyboard, and what follows from it in one step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, Page, expect

from dashboard.playground.playground_page import CHAT_HINT, QUESTIONS
from dashboard.ui.fields import pair_defaults
from fsd_core.storage.messages import Chunk, EmittedToken, StreamFigures
from tests.tools.chromium import BROWSER_PATIENCE
from tests.tools.settled import settled, watch
from tests.tools.site import Site
from tests.ui.conftest import problems_of
from tests.ui.test_playground import choose, finish, prompt, start, worker_that_is_there

pytestmark = pytest.mark.ui
__all__ = ["worker_that_is_there"]  # a fixture, which every test here uses


@pytest.fixture
def touched(browser: Browser) -> Iterator[Page]:
    """A window that is touched."""
    with closing(browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)) as profile:
        profile.set_default_timeout(BROWSER_PATIENCE)
        watch(profile)
        page = profile.new_page()
        problems = problems_of(page)
        yield page
        assert not problems, problems


def written(setting: int, texts: list[str], per_second: float) -> Chunk:
    """A whole text, whose second token is lenient where the target would have written another one."""
    tokens = [EmittedToken(text, ord(text[-1]), "strict", 0.01, 0.9, 0.8) for text in texts]
    if setting:
        tokens[1] = EmittedToken(texts[1], ord(texts[1][-1]), "lenient", 0.0712, 0.3, 0.6, None, None, "<i>is")
    figures = StreamFigures(len(tokens), 2, 0.1, per_second, 0.8, 3.0, None, 40.0)
    return Chunk(setting, tuple(tokens), figures, True, "eos")


@pytest.mark.wide("test_playground.py")
def test_a_result_is_explained_marked_and_one_step_from_a_task_and_an_experiment(touched: Page, site: Site) -> None:
    page = touched
    page.goto(f"{site.url}/playground")
    choose(page, "Model pair", "SmolLM2 135M with our draft")
    expect(prompt(page)).to_have_value(QUESTIONS[0])
    page.reload()
    expect(page.get_by_text(CHAT_HINT)).to_be_visible()
    page.get_by_label("Example", exact=True).click()
    expect(page.get_by_role("option").nth(1)).to_contain_text(QUESTIONS[1])
    page.keyboard.press("Escape")
    choose(page, "Model pair", "Bundled arithmetic pair")

    fewer, stays = page.get_by_role("button", name="Remove the last"), page.get_by_text("The last setting stays")
    fewer.tap()
    expect(fewer).to_be_disabled()
    expect(stays).to_be_visible()
    page.get_by_role("button", name="Add a setting").tap()
    expect(fewer).to_be_enabled()
    expect(stays).to_be_hidden()

    prompt(page).fill("Question: 2 + 2?\nAnswer:")
    job = start(page, site)
    # What was promised of the pair is what is compared with exact speculative decoding.
    first, second = (setting["topology"]["length"] for setting in job.payload["settings"])
    assert (first, second) == (pair_defaults("bundled").exact_length, pair_defaults("bundled").draft_length)
    site.repository.append_chunks(job.id, [written(0, ["Two", " and", " two"], 60.0)])
    expect(page.locator("#lane-1")).to_contain_text("1.50× as fast as the target alone, which writes 40 tokens/s")
    site.repository.append_chunks(job.id, [written(1, ["Two", " plus", " two"], 90.0)])
    finish(site, job)
    expect(page.locator("#lane-2")).to_contain_text("2.25× as fast as the target alone")
    for lane, word in (("#lane-1", "and"), ("#lane-2", "plus")):
        expect(page.locator(f"{lane} mark")).to_have_text([word])

    expect(page.get_by_text("Choose a token, by click, by touch, or with Tab and the arrow keys")).to_be_visible()
    detail = page.locator("#tok-detail")
    page.locator("#lane-2 .tok").nth(1).tap()
    for told in ("the rule is lenient (js ≤ 0.1)", 'The target would have written "<i>is".', "0.0712"):
        expect(detail).to_contain_text(told)
    page.locator("#lane-2 .tok").first.focus()
    expect(detail).not_to_contain_text("would have written")
    page.keyboard.press("ArrowRight")
    expect(detail).to_contain_text("would have written")
    page.keyboard.press("Escape")

    add, told = page.get_by_role("button", name="Add the prompt to the task"), page.locator("#added")
    page.get_by_label("Task of your own").fill("My Prompts")
    add.tap()
    expect(told).to_contain_text("cannot be used")
    page.get_by_label("Task of your own").fill("asked-here")
    for _ in range(2):  # once more changes nothing
        add.tap()
        settled(page)
        expect(told).to_contain_text("asked-here has this prompt, and 1 prompt in all")
    (task,) = site.repository.task_versions("asked-here")
    assert "2 + 2?" in site.repository.task_content("asked-here", task.version)

    expect(page.get_by_role("link", name="An experiment")).to_have_attribute("href", f"experiments?settings={job.id}")
    told.get_by_role("link").tap()
    expect(page.get_by_label("Thresholds")).to_have_value("0.1")
    expect(page.get_by_label("Task", exact=True)).to_have_value(re.compile("asked-here"))
    expect(page.get_by_label("Draft lengths")).to_have_value("5, 16")
    expect(page.get_by_label("Prompts", exact=True)).to_have_value("1")
    expect(page.get_by_label("Target alone")).not_to_be_checked()
    expect(page.get_by_text("4 settings")).to_be_visible()  # both rules at both lengths
