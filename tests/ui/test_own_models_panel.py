"""Models of one's own in a browser: two folders become a pair that can be measured, and what cannot be used is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dashboard.ui.fields import pair_defaults
from fsd_core.config.model_names import models_of
from fsd_core.tasks import TASKS
from fsd_core.testing import save_toy_pair
from tests.tools.settled import settled
from tests.tools.site import Site

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_model_pairs.py")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save_toy_pair(folder)
    return folder


def opened(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/experiments")
    expect(page.get_by_text("generations").first).to_be_visible()
    settled(page)
    page.get_by_role("button", name="Your own models").click()


def fill(page: Page, name: str, target: object, draft: object) -> None:
    page.get_by_label("Pair's name").fill(name)
    page.get_by_label("Target", exact=True).fill(str(target))
    page.get_by_label("Draft", exact=True).fill(str(draft))


def type_a_pair(page: Page, text: str) -> None:
    """Type into the field of the pair and leave it: what is no pair stays, and is told of."""
    pair = page.get_by_label("Model pair", exact=True)
    pair.fill(text)
    pair.press("Tab")
    expect(pair).to_have_value(text)


def test_two_folders_are_checked_added_chosen_and_measured(page: Page, site: Site, folder: Path) -> None:
    opened(page, site)
    answer, pair = page.locator("#models-answer"), page.get_by_label("Model pair", exact=True)
    fill(page, "mine", folder / "target", folder / "draft")
    page.get_by_role("button", name="Check the models").click()
    expect(answer.locator(".fsd-notice")).to_have_text("The models are here.")
    expect(answer.locator("li")).to_contain_text(["The target is here: llama", "The draft is here"])
    assert site.repository.own_pairs() == []

    page.get_by_role("button", name="Add the pair").click()
    expect(answer.locator(".fsd-notice")).to_have_text("mine is added and chosen: here.")
    expect(pair).to_have_value("mine")
    expect(page.locator("#own-pairs .more-task")).to_contain_text("here · target")
    (kept,) = site.repository.own_pairs()
    assert (kept.name, kept.added_by) == ("mine", "local user")
    assert models_of(kept.models) == {"target": f"{folder}/target", "draft": f"{folder}/draft"}

    page.get_by_label("Name", exact=True).fill("With my own models")
    page.get_by_role("button", name="Start experiment").click()
    card = page.locator("#experiments")
    expect(card).to_contain_text("mine · everyday")
    (experiment,) = site.repository.experiments()
    assert experiment.config.pair == kept.models

    page.goto(f"{site.url}/")
    settled(page)
    page.get_by_label("Model pair", exact=True).click()
    page.get_by_role("option", name="mine", exact=True).click()
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#verdict")).to_contain_text("The worker is not running")
    (job,) = site.repository.latest_jobs("playground")
    assert job.payload["pair"] == kept.models

    opened(page, site)
    expect(pair).to_have_value("mine")
    expect(page.get_by_label("Task", exact=True)).to_have_value(TASKS["everyday"].title)
    expect(page.get_by_label("Prompts", exact=True)).to_have_value(str(pair_defaults(kept.models).limit))
    page.locator("#own-pairs").get_by_role("button", name="Forget").click()
    page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    expect(page.locator("#own-pairs .more-task")).to_have_count(0)
    assert site.repository.own_pairs() == []


def test_what_cannot_be_used_is_told_and_nothing_is_kept(page: Page, site: Site, folder: Path) -> None:
    opened(page, site)
    answer = page.locator("#models-answer")
    for name, target, told in (
        ("mine", "", "The target is empty: expected OWNER/NAME of the hub"),
        ("mine", folder / "nothing", "holds no target: config.json is missing"),
        ("Not a name", folder / "target", "The pair's name 'Not a name' cannot be used"),
        ("bundled", folder / "target", "The name 'bundled' is that of a pair of the program"),
        ("mine", "<img src=x onerror=alert(1)>", "The target '<img src=x onerror=alert(1)>' cannot be used"),
    ):
        fill(page, name, target, "")
        for button in ("Check the models", "Add the pair"):
            page.get_by_role("button", name=button).click()
            expect(answer).to_contain_text(told)
            fill(page, "", "", "")
            page.get_by_role("button", name="Check the models").click()
            expect(answer).to_contain_text("The target is empty")
            fill(page, name, target, "")
    type_a_pair(page, "my models")
    expect(page.locator(".exp-size").first).to_contain_text("There is no model pair called 'my models'")
    expect(page.get_by_role("button", name="Start experiment")).to_be_disabled()
    page.goto(f"{site.url}/")
    settled(page)
    type_a_pair(page, "my models")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#verdict")).to_contain_text("The list has no model pair called 'my models'")
    assert all(job.payload["pair"] != "my models" for job in site.repository.latest_jobs("playground"))
    assert site.repository.own_pairs() == []
