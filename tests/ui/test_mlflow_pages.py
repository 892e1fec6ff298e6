"""MLflow's pages in a real browser: what a person does with runs there, and what a page of another origin cannot."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.attack.mlflow import Pages, pages_over
from tests.integration.worker_process import until
from tests.ui.test_cross_site import FORM, SEND, Blank

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with pages_over(tmp_path_factory.mktemp("home")) as pages:
        yield pages


@pytest.fixture
def window(browser: Browser, pages: Pages) -> Iterator[Page]:
    """A window; a request to anywhere but MLflow's server fails the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    elsewhere: list[str] = []
    page.on(
        "request", lambda r: elsewhere.append(r.url) if not r.url.startswith((pages.url, "data:", "blob:")) else None
    )
    page.set_default_timeout(20_000)
    yield page
    context.close()
    assert not elsewhere


def run_page(pages: Pages, position: int, tab: str = "") -> str:
    return f"{pages.url}/#/experiments/{pages.experiment}/runs/{pages.runs[position]}{tab}"


def test_a_run_is_renamed_described_tagged_and_deleted(window: Page, pages: Pages) -> None:
    window.goto(run_page(pages, 2))
    expect(window.locator("h1, h2").filter(has_text="SD · γ 5").first).to_be_visible()
    window.get_by_role("button", name="Edit description").click()
    window.locator("textarea").first.fill("The one to beat")
    window.get_by_role("button", name="Save").click()
    expect(window.locator("textarea")).to_have_count(0)
    window.get_by_test_id("overflow-menu-trigger").click()
    window.get_by_role("menuitem", name="Rename").click()
    window.get_by_role("dialog").get_by_role("textbox").fill("Exact SD")
    window.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(window.get_by_text("Exact SD").first).to_be_visible()
    window.get_by_role("button", name="Edit tags").click()
    dialog = window.get_by_role("dialog")
    dialog.get_by_role("combobox").fill("reviewed")
    dialog.get_by_role("combobox").press("Enter")
    dialog.get_by_placeholder("Type a value").fill("yes")
    dialog.get_by_placeholder("Type a value").press("Enter")
    dialog.get_by_role("button", name="Save tags").click()
    until(lambda: pages.client.get_run(pages.runs[2]).data.tags.get("reviewed") == "yes", "the tag")
    found = pages.client.get_run(pages.runs[2])
    assert (found.info.run_name, found.data.tags["mlflow.note.content"]) == ("Exact SD", "The one to beat")
    window.get_by_test_id("overflow-menu-trigger").click()
    window.get_by_role("menuitem", name="Delete").click()
    window.get_by_role("dialog").get_by_role("button", name=re.compile("^Delete")).click()
    until(lambda: pages.client.get_run(pages.runs[2]).info.lifecycle_stage == "deleted", "the end of the run")


def test_runs_are_listed_and_compared(window: Page, pages: Pages) -> None:
    window.goto(f"{pages.url}/#/experiments/{pages.experiment}/runs")
    expect(window.get_by_text("What leniency costs").first).to_be_visible()
    runs, experiments = json.dumps(pages.runs[:2]), json.dumps([pages.experiment])
    window.goto(f"{pages.url}/#/compare-runs?runs={runs}&experiments={experiments}")
    expect(window.get_by_text("Comparing 2 Runs from 1 Experiment").first).to_be_visible()
    expect(window.get_by_text("Target alone").first).to_be_visible()
    expect(window.get_by_text("Draft alone").first).to_be_visible()


def test_the_artifacts_of_a_run_are_shown(window: Page, pages: Pages) -> None:
    window.goto(run_page(pages, 5, "/artifacts"))
    window.get_by_text("figures.html", exact=True).first.click()
    drawn = window.locator("iframe").content_frame
    expect(drawn.get_by_text("Acceptance by position")).to_be_visible()
    expect(drawn.get_by_text("Judged draft tokens")).to_be_visible()
    assert drawn.locator("svg").first.bounding_box()["height"] > 150  # type: ignore[index]
    window.get_by_text("generations.json", exact=True).first.click()
    expect(window.get_by_text("arithmetic-0").first).to_be_visible()
    window.get_by_text("config.json", exact=True).first.click()
    expect(window.get_by_text('"fsd-reducible"').first).to_be_visible()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_changes_nothing(browser: Browser, pages: Pages, host: str) -> None:
    rename = json.dumps({"run_id": pages.runs[1], "run_name": "Taken over"})
    update = f"{pages.url}/ajax-api/2.0/mlflow/runs/update"
    context = browser.new_context()
    page = context.new_page()
    with ThreadingHTTPServer(("127.0.0.1", 0), Blank) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.goto(f"http://{host}:{server.server_port}")
        for kind, mode in (("text/plain", "no-cors"), ("text/plain", "cors"), ("application/json", "cors")):
            options = {"method": "POST", "mode": mode, "headers": {"Content-Type": kind}, "body": rename}
            assert page.evaluate(SEND, [update, options]) in ("failed", "opaque")
        put = {"method": "PUT", "mode": "cors", "body": "planted"}
        assert page.evaluate(SEND, [f"{pages.url}/api/2.0/mlflow-artifacts/artifacts/planted.txt", put]) == "failed"
        read = f"{pages.url}/ajax-api/2.0/mlflow/runs/get?run_id={pages.runs[1]}"
        assert page.evaluate(SEND, [read, {"mode": "cors"}]) == "failed"
        page.evaluate(FORM, [update, rename])
        expect(page.locator("body")).to_contain_text("made by a page of another site")
        page.goto(f"{pages.url}/health")  # the same from MLflow's own origin
        assert pages.client.get_run(pages.runs[1]).info.run_name == "Draft alone · seed 0"
        options = {"method": "POST", "headers": {"Content-Type": "application/json"}, "body": rename}
        assert page.evaluate(SEND, [update, options]) == 200
        assert pages.client.get_run(pages.runs[1]).info.run_name == "Taken over"
        pages.client.update_run(pages.runs[1], name="Draft alone · seed 0")
        server.shutdown()
    context.close()
    assert list(pages.folder.rglob("planted.txt")) == []
