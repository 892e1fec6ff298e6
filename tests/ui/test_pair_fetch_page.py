"""Models of a hub on the page: found, named, fetched with progress, cancelled, continued after the page was closed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect
from safetensors.torch import save_file

from fsd_core.config.model_names import name_of_models
from fsd_core.testing import save_toy_pair
from tests.tools.forked import ForkedCommand
from tests.tools.settled import settled
from tests.tools.site import Site, serving
from tests.tools.stand_in_hub import Repo, StandInHub, stand_in_hub

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_hub_files.py")]

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


def opened(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/experiments")
    expect(page.get_by_text("generations").first).to_be_visible()
    settled(page)
    page.get_by_role("button", name="Your own models").click()


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


def test_pairs_of_the_program_are_fetched_from_the_page_too(page: Page, lab: Site) -> None:
    opened(page, lab)
    page.get_by_role("button", name="Pairs of the program that are not here").click()
    line = page.locator("#preset-pairs .more-task", has_text="SmolLM2 135M with our draft")
    expect(line).to_contain_text("to fetch, 92.9 MB")
    line.get_by_role("button", name="Fetch").click()
    expect(line).to_contain_text("Waiting: nothing fetches now.")
    line.get_by_role("button", name="Cancel").click()
    expect(line).to_contain_text("It was stopped.")


def test_a_hub_that_does_not_answer_is_one_sentence(page: Page, site: Site) -> None:
    opened(page, site)
    page.get_by_label("Search the hub").fill("hen")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("#models-answer")).to_contain_text("so its models cannot be searched: connect, or name models")
