"""Models of one's own in a browser: folders and a hub's models become a pair that forms begin with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Locator, Page, expect
from safetensors.torch import save_file

from dashboard.ui.fields import UNCALIBRATED, pair_defaults
from fsd_core.config.model_names import models_of, name_of_models
from fsd_core.tasks import TASKS
from fsd_core.testing import save_toy_pair
from tests.tools.forked import ForkedCommand
from tests.tools.settled import go, settled
from tests.tools.site import Site, serving
from tests.tools.stand_in_hub import Repo, StandInHub, stand_in_hub
from tests.ui.test_playground import unfold_settings

pytestmark = pytest.mark.ui


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


@pytest.mark.wide("test_model_pairs.py")
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

    page.goto(f"{site.url}/playground")
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


@pytest.mark.wide("test_model_pairs.py")
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
    page.goto(f"{site.url}/playground")
    settled(page)
    type_a_pair(page, "my models")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#verdict")).to_contain_text("The list has no model pair called 'my models'")
    assert all(job.payload["pair"] != "my models" for job in site.repository.latest_jobs("playground"))
    assert site.repository.own_pairs() == []


LARGE = 30_000_000  # bytes


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInHub]:
    folder = tmp_path_factory.mktemp("hub")
    save_toy_pair(folder)
    save_file({"weight": torch.zeros(LARGE, dtype=torch.uint8)}, folder / "target" / "model.safetensors")
    with stand_in_hub() as stand_in:
        stand_in.repos |= {"farm/Hen-7B": Repo(folder / "target"), "farm/Hen-0.5B": Repo(folder / "draft")}
        yield stand_in


@pytest.fixture
def lab(tmp_path: Path, stand_in: StandInHub) -> Iterator[Site]:
    with serving(tmp_path, HF_ENDPOINT=stand_in.url) as site:
        yield site


@pytest.fixture
def worker(lab: Site, stand_in: StandInHub) -> Iterator[None]:
    own = {"FSD_HOME": str(lab.home), "FSD_MLFLOW_URI": "http://127.0.0.1:5999", "FSD_THREADS": "1"}
    process = ForkedCommand(("worker",), {**os.environ, **own, "HF_ENDPOINT": stand_in.url}, lab.home / "worker.out")
    yield
    process.kill()
    process.wait()


@pytest.mark.wide("test_hub_files.py")
@pytest.mark.usefixtures("worker")
def test_models_are_found_named_fetched_stopped_and_fetched_to_the_end(
    page: Page, lab: Site, stand_in: StandInHub
) -> None:
    opened(page, lab)
    answer, line = page.locator("#models-answer"), page.locator("#own-pairs .more-task")
    page.get_by_label("Search the hub").fill("hen")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(answer.locator(".fsd-notice")).to_have_text("2 models at the hub.")
    answer.locator(".more-task", has_text="farm/Hen-7B").get_by_role("button", name="Use as target").click()
    expect(page.get_by_label("Target", exact=True)).to_have_value("farm/Hen-7B")

    page.get_by_role("button", name="Suggest drafts").click()
    expect(answer).to_contain_text("1 smaller model with the tokenizer of farm/Hen-7B; ")
    answer.get_by_role("button", name="Use as draft").click()
    expect(page.get_by_label("Draft", exact=True)).to_have_value("farm/Hen-0.5B")

    page.get_by_label("Pair's name").fill("hens")
    page.get_by_label("Loaded as").click()
    page.get_by_role("option", name="bfloat16").click()
    page.get_by_role("button", name="Add the pair").click()
    expect(answer.locator(".fsd-notice")).to_have_text("hens is added and chosen: to fetch, 30.2 MB.")
    expect(page.get_by_label("Model pair", exact=True)).to_have_value("hens · to fetch, 30.2 MB")
    (kept,) = lab.repository.own_pairs()
    assert kept.models == name_of_models({"target": "farm/Hen-7B", "draft": "farm/Hen-0.5B", "dtype": "bfloat16"})
    expect(line).to_contain_text("to fetch, 30.2 MB · target farm/Hen-7B, draft farm/Hen-0.5B, bfloat16")

    stand_in.held_from = LARGE // 2
    line.get_by_role("button", name="Fetch").click()
    expect(line.get_by_role("progressbar")).to_be_visible()
    expect(line).to_contain_text("of 30.2 MB")
    page.goto("about:blank")  # the worker goes on
    opened(page, lab)
    line.get_by_role("button", name="Cancel").click()
    expect(line.get_by_role("button", name="Cancelling").or_(line.locator(".fsd-notice"))).to_be_visible()
    stand_in.held_from = None
    stand_in.go_on.set()
    expect(line.locator(".fsd-notice")).to_contain_text("which are kept.")
    line.get_by_role("button", name="Go on fetching").click()
    expect(line).to_contain_text("here · target farm/Hen-7B")
    expect(line.get_by_role("button")).to_have_text(["Forget"])
    expect(page.get_by_label("Model pair", exact=True)).not_to_have_value("hens · to fetch, 30.2 MB")
    first, second, *_ = stand_in.firsts("model.safetensors")
    assert first == 0 < second


@pytest.mark.wide("test_hub_files.py")
def test_pairs_of_the_program_are_fetched_from_the_page_too(page: Page, lab: Site) -> None:
    opened(page, lab)
    page.get_by_role("button", name="Pairs of the program that are not here").click()
    line = page.locator("#preset-pairs .more-task", has_text="SmolLM2 135M with our draft")
    expect(line).to_contain_text("to fetch, 92.9 MB")
    line.get_by_role("button", name="Fetch").click()
    expect(line).to_contain_text("Waiting: nothing fetches now.")
    line.get_by_role("button", name="Cancel").click()
    expect(line).to_contain_text("It was stopped.")


@pytest.mark.wide("test_hub_files.py")
def test_a_hub_that_does_not_answer_is_one_sentence(page: Page, site: Site) -> None:
    opened(page, site)
    page.get_by_label("Search the hub").fill("hen")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("#models-answer")).to_contain_text("so its models cannot be searched: connect, or name models")


OURS, OTHER = pair_defaults("bundled"), pair_defaults("smollm2-135m")


def choose(page: Page, pair: str) -> None:
    page.get_by_label("Model pair").click()
    page.get_by_role("option", name=pair).click()


def of_setting(page: Page, number: int, label: str) -> Locator:
    """A field of one of the Playground's settings."""
    return page.locator(".setting:visible").nth(number - 1).get_by_label(label)


@pytest.mark.wide("test_model_pairs.py")
def test_an_experiment_begins_with_what_was_measured_of_the_pair(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/experiments")
    thresholds, prompts = page.get_by_label("Thresholds"), page.get_by_label("Prompts", exact=True)
    expect(thresholds).to_have_value(OURS.thresholds)
    expect(page.get_by_label("Draft lengths")).to_have_value(OURS.lengths)
    expect(prompts).to_have_value(str(OURS.limit))
    expect(page.get_by_text(OURS.sentence)).to_be_visible()
    choose(page, "SmolLM2 135M with our draft")
    expect(thresholds).to_have_value(OTHER.thresholds)
    expect(prompts).to_have_value(str(OTHER.limit))
    expect(page.get_by_text(UNCALIBRATED)).to_be_visible()
    thresholds.fill("0.07")
    choose(page, "Bundled arithmetic pair")
    expect(prompts).to_have_value(str(OURS.limit))
    expect(thresholds).to_have_value("0.07")


@pytest.mark.wide("test_model_pairs.py")
def test_the_playground_s_second_setting_begins_with_the_pair_s_best(page: Page, site: Site) -> None:
    go(page, f"{site.url}/playground")
    unfold_settings(page)
    threshold, lengths = of_setting(page, 2, "Threshold"), [of_setting(page, i, "Draft length") for i in (1, 2)]
    expect(threshold).to_have_value(f"{OURS.threshold:g}")
    expect(lengths[0]).to_have_value(str(OURS.exact_length))
    expect(lengths[1]).to_have_value(str(OURS.draft_length))
    lengths[0].fill("7")
    choose(page, "SmolLM2 135M with our draft")
    expect(lengths[1]).to_have_value(str(OTHER.draft_length))
    expect(threshold).to_have_value(f"{OTHER.threshold:g}")
    expect(lengths[0]).to_have_value("7")
