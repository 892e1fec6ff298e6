"""MLflow's pages in a real browser, below our own: people look at runs and cannot change them."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dashboard.server.mlflow_pages import MLFLOW_STARTING, READ_ONLY
from fsd_core.settings import Settings
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from fsd_core.worker.supervisor import mlflow_service
from tests.tools.mlflow_pages import Pages, pages_over
from tests.tools.prefix_proxy import proxying
from tests.tools.served import served
from tests.tools.site import serving
from tests.tools.sizes import PATIENCE
from tests.ui.test_doors import FORM, SEND, Blank

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_mlflow_server.py")]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with pages_over(tmp_path_factory.mktemp("home")) as pages:
        yield pages


@pytest.fixture
def window(fresh: Page, pages: Pages) -> Iterator[Page]:
    """A window; a request to anywhere but below the application's address fails the test, and so does a page whose
    scripts or files the content policy does not let in."""
    page = fresh
    problems: list[str] = []
    page.on("request", lambda r: None if r.url.startswith((pages.site, "data:", "blob:")) else problems.append(r.url))
    page.on("console", lambda m: problems.append(m.text) if "Content Security Policy" in m.text else None)
    page.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    yield page
    assert not problems, problems


def run_page(pages: Pages, position: int, tab: str = "") -> str:
    return f"{pages.url}/#/experiments/{pages.experiment}/runs/{pages.runs[position]}{tab}"


def test_a_run_of_ours_and_its_copy_lead_to_each_other(window: Page, pages: Pages) -> None:
    repository = Repository(open_database(pages.settings.resolved_database_url))
    run = next(run for run in repository.runs() if run.mlflow_run_id == pages.runs[2])
    window.goto(f"{pages.site}/runs?run={run.id}")
    with window.expect_popup() as opened:
        window.get_by_role("link", name="Open in MLflow").click()
    copy = opened.value
    expect(copy.locator("h1, h2").filter(has_text="SD · γ 5").first).to_be_visible()
    assert copy.url == run_page(pages, 2)
    with copy.expect_popup() as opened:
        copy.get_by_role("link", name="Open in FSD Lab").click()
    back = opened.value
    expect(back.get_by_role("heading", name=re.compile("^SD · γ 5"))).to_be_visible()
    assert back.url == f"{pages.site}/runs?run={run.id}"


def test_they_open_on_our_experiments_without_an_assistant_and_what_is_chosen_stays(window: Page, pages: Pages) -> None:
    window.goto(f"{pages.site}/runs")
    with window.expect_popup() as opened:
        window.get_by_role("link", name="MLflow", exact=True).click()
    page = opened.value
    expect(page.get_by_role("heading", name="Experiments")).to_be_visible()
    assert page.url == f"{pages.url}/#/experiments"
    expect(page.get_by_text("Welcome to MLflow")).to_have_count(0)
    expect(page.get_by_text("Information about UI telemetry")).to_have_count(0)
    page.get_by_text("GenAI", exact=True).click()
    page.reload()
    expect(page.get_by_role("heading", name="Experiments")).to_be_visible()
    assert page.evaluate("localStorage.getItem('mlflow.workflowType_v1')") == '"genai"'


def test_below_a_path_of_a_proxy_they_lead_to_each_other_too(fresh: Page, pages: Pages) -> None:
    root, requests = "/tools/lab", []
    run = Repository(open_database(pages.settings.resolved_database_url)).runs()[0]
    with (
        served(pages.settings.home, FSD_MLFLOW_UI="true", FSD_ROOT_PATH=root) as (url, _),
        proxying(url, root) as proxy,
    ):
        fresh.context.on("request", lambda request: requests.append(request.url))
        fresh.goto(f"{proxy.url}/runs?run={run.id}")
        with fresh.expect_popup() as opened:
            fresh.get_by_role("link", name="Open in MLflow").click()
        copy = opened.value
        with copy.expect_popup() as opened:
            copy.get_by_role("link", name="Open in FSD Lab").click()
        expect(opened.value.locator("details", has_text="Settings and provenance")).to_be_attached()
        assert copy.url.startswith(f"{proxy.url}/mlflow/#/experiments/")
        assert opened.value.url == f"{proxy.url}/runs?run={run.id}"
        assert [one for one in requests if not one.startswith((f"{proxy.url}/", "data:", "blob:"))] == []
        assert proxy.outside == []


def test_runs_are_listed_and_compared_their_artifacts_shown_and_whoever_tries_to_change_one_is_told(
    window: Page, pages: Pages
) -> None:
    window.goto(f"{pages.url}/#/experiments/{pages.experiment}/runs")
    expect(window.get_by_text("What leniency costs").first).to_be_visible()
    runs, experiments = json.dumps(pages.runs[:2]), json.dumps([pages.experiment])
    window.goto(f"{pages.url}/#/compare-runs?runs={runs}&experiments={experiments}")
    expect(window.get_by_text("Comparing 2 Runs from 1 Experiment").first).to_be_visible()
    expect(window.get_by_text("Target alone").first).to_be_visible()
    expect(window.get_by_text("Draft alone").first).to_be_visible()
    expect(window.locator(".js-plotly-plot .gl-canvas").first).to_be_visible()  # its code writes functions

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

    window.goto(run_page(pages, 2))
    window.get_by_test_id("overflow-menu-trigger").click()
    window.get_by_role("menuitem", name="Rename").click()
    window.get_by_role("dialog").get_by_role("textbox").fill("Exact SD")
    window.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(window.get_by_role("dialog").get_by_text(READ_ONLY)).to_be_visible()
    window.reload()
    window.get_by_test_id("overflow-menu-trigger").click()
    window.get_by_role("menuitem", name="Delete").click()
    window.get_by_role("dialog").get_by_role("button", name=re.compile("^Delete")).click()
    expect(window.get_by_text(READ_ONLY).first).to_be_visible()
    found = pages.client.get_run(pages.runs[2]).info
    assert (found.run_name, found.lifecycle_stage) == ("SD · γ 5 · seed 0", "active")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_reads_nothing(fresh: Page, pages: Pages, host: str) -> None:
    search = json.dumps({"experiment_ids": [pages.experiment]})
    asked = f"{pages.url}/ajax-api/2.0/mlflow/runs/search"
    page = fresh
    with ThreadingHTTPServer(("127.0.0.1", 0), Blank) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.goto(f"http://{host}:{server.server_port}")
        for kind, mode in (("text/plain", "no-cors"), ("text/plain", "cors"), ("application/json", "cors")):
            options = {"method": "POST", "mode": mode, "headers": {"Content-Type": kind}, "body": search}
            assert page.evaluate(SEND, [asked, options]) in ("failed", "opaque")
        read = f"{pages.url}/ajax-api/2.0/mlflow/runs/get?run_id={pages.runs[1]}"
        assert page.evaluate(SEND, [read, {"mode": "cors"}]) == "failed"
        page.evaluate(FORM, [asked, search])
        expect(page.locator("body")).to_contain_text("made by a page of another site")
        page.goto(f"{pages.url}/health")  # the same from our own origin
        options = {"method": "POST", "headers": {"Content-Type": "application/json"}, "body": search}
        assert page.evaluate(SEND, [asked, options]) == 200
        server.shutdown()


def test_a_page_that_comes_too_early_waits(fresh: Page, tmp_path: Path) -> None:
    """It loads itself again until MLflow is up, and shows then what the link names."""
    with serving(tmp_path, FSD_MLFLOW_UI="true", FSD_MLFLOW_URI="") as site:
        page = fresh
        page.goto(f"{site.url}/mlflow/#/experiments")
        expect(page.get_by_text(MLFLOW_STARTING)).to_be_visible()
        settings = Settings(home=tmp_path)
        settings.make_folders()
        service = mlflow_service(settings, {**os.environ, "FSD_HOME": str(tmp_path)})
        service.keep_alive()
        try:
            expect(page.get_by_role("heading", name="Experiments")).to_be_visible(timeout=1000 * PATIENCE)
            assert page.url == f"{site.url}/mlflow/#/experiments"
        finally:
            service.ask_to_stop()
            assert service.wait(time.monotonic() + PATIENCE)
