"""The pages of a ZeroGPU Space in a browser, with an imitation of ``spaces`` that really forks."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from fsd_core.metrics import SHARED_DEVICE
from tests.tools.sizes import PATIENCE
from tests.tools.zero_gpu.app_process import Space

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_space_app.py")]
LONG = 1000 * PATIENCE  # in milliseconds, as the browser counts


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Space]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    space = Space(tmp_path_factory.mktemp("space"), port)
    space.start()
    yield space
    space.kill()


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """Of a visitor whom Hugging Face names to the Space, as its proxy does."""
    context = browser.new_context(extra_http_headers={"x-ip-token": "a visitor"})
    context.set_default_timeout(LONG)
    yield context.new_page()
    context.close()


def test_a_text_is_charged_to_who_asked_and_its_speed_is_said_to_be_shared(page: Page, space: Space) -> None:
    page.goto(f"{space.url}/playground")
    expect(page.locator("body")).to_contain_text(SHARED_DEVICE)
    page.get_by_role("button", name="Generate").click()
    for lane in ("#lane-1", "#lane-2"):
        expect(page.locator(f"{lane} [data-done=true]")).to_have_count(1, timeout=LONG)
    assert [call["token"] for call in space.calls if call["call"] == "PlaygroundCall"] == ["a visitor"]


def test_a_gpu_that_is_not_lent_is_told_in_words(page: Page, space: Space) -> None:
    (space.folder / "refuse").write_text("You have exceeded your free ZeroGPU quota (60s requested vs. 3s left).")
    page.goto(f"{space.url}/playground")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#verdict")).to_contain_text("You have exceeded your free ZeroGPU quota", timeout=LONG)
    (space.folder / "refuse").unlink()


def test_an_experiment_is_charged_to_who_started_it(page: Page, space: Space) -> None:
    page.goto(f"{space.url}/experiments")
    expect(page.get_by_text("= 2,400 generations")).to_be_visible(timeout=LONG)  # the page is alive
    page.get_by_label("Thresholds").fill("0.1")
    page.get_by_label("Draft lengths").fill("5")
    page.get_by_label("Prompts", exact=True).fill("3")
    expect(page.get_by_text("= 15 generations")).to_be_visible(timeout=LONG)
    page.get_by_role("button", name="Start experiment").click()
    expect(page.locator("article.exp")).to_contain_text("finished", timeout=LONG)
    assert {call["token"] for call in space.calls if call["call"] == "RunSlice"} == {"a visitor"}
    page.goto(f"{space.url}/runs")
    expect(page.locator("td .fsd-mark").first).to_have_attribute("title", SHARED_DEVICE, timeout=LONG)


def test_the_log_is_quiet(space: Space) -> None:
    assert "Traceback" not in Path(space.log).read_text()
