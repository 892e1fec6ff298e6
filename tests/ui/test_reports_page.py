"""What people save, in a browser: reports and views, opened by their links, deleted by those who may."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.tools import plausible
from tests.tools.folds import unfold
from tests.tools.settled import go, settled
from tests.tools.site import Site

pytestmark = pytest.mark.ui


TEXT = "## Finding\n\nKeep **js ≤ 0.2**.\n\n<script>alert(1)</script> ${alert(2)} <img src=x onerror=alert(3)>"


def test_a_report_is_saved_read_exported_and_deleted(page: Page, fresh: Page, site: Site, tmp_path: Path) -> None:
    experiment = plausible.add_finished(site.repository, "Find the knee", limit=6)
    go(page, f"{site.url}/reports")
    expect(page.get_by_text("No reports yet")).to_be_visible()
    go(page, f"{site.url}/compare?experiment={experiment}")
    unfold(page, "Save as a report")
    page.get_by_role("button", name="Save the report").click()
    expect(page.locator(".fsd-notice.bad")).to_contain_text("Title")  # it needs one
    assert site.repository.reports() == []
    page.get_by_label("Report title").fill("Which threshold")
    page.get_by_label("Report text").fill(TEXT)
    page.get_by_label("Settings (table)").check()
    page.get_by_role("button", name="Save the report").click()
    saved = page.get_by_role("link", name="Which threshold")
    expect(saved).to_be_visible()
    expect(page.get_by_label("Report title")).to_have_value("")
    saved.click()
    report = page.locator("#report article")
    expect(report.get_by_role("heading", name="Finding")).to_be_visible()
    expect(report.get_by_text("<script>alert(1)</script> ${alert(2)} <img src=x")).to_be_visible()
    expect(report.locator("img")).to_have_count(2)
    page.wait_for_function(
        "[...document.querySelectorAll('#report img')].every((image) => (image.loading = 'eager', image.naturalWidth))"
    )
    (name,) = site.repository.reports()
    assert page.url.endswith(f"/reports?report={name.id}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export HTML").click()
    assert download.value.suggested_filename == "which-threshold.html"
    file = tmp_path / "report.html"
    download.value.save_as(file)
    fetched: list[str] = []
    fresh.on("request", lambda request: fetched.append(request.url.partition(":")[0]))
    fresh.goto(file.as_uri())
    expect(fresh.get_by_role("heading", name="Finding")).to_be_visible()
    fresh.wait_for_function("[...document.images].every((image) => (image.loading = 'eager', image.naturalWidth))")
    assert set(fetched) <= {"file", "data"}  # no network
    assert fresh.evaluate("document.scripts.length") == 0

    gone = site.repository.report(name.id).content.runs[1]
    site.repository.delete_run(gone.id)
    go(page, f"{site.url}/reports?report={name.id}")
    expect(page.get_by_text("Since then 1 of its runs was deleted")).to_contain_text(gone.name)
    expect(page.get_by_role("cell", name=gone.id)).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("There is no report")).to_be_visible()
    page.get_by_role("link", name="See all reports").click()
    expect(page.get_by_text("No reports yet")).to_be_visible()


RESULT = Path(__file__).resolve().parents[1] / "data" / "results" / "vllm-bench-serve.json"


def opened(page: Page, address: str) -> Locator:
    """The views of a page that is opened."""
    go(page, address)
    page.get_by_role("button", name="Saved views").click()
    return page.locator("#views")


def save(page: Page, name: str) -> None:
    page.get_by_label("Name of the view").fill(name)
    page.get_by_role("button", name="Save the view").click()
    expect(page.get_by_text(f"“{name}” is saved")).to_be_visible()
    expect(page.get_by_label("Name of the view")).to_have_value("")


@pytest.mark.wide("test_saved_views.py")
def test_views_are_saved_opened_replaced_renamed_and_deleted(page: Page, site: Site) -> None:
    experiment = plausible.add_finished(site.repository, "Find the knee", limit=3)
    runs = site.repository.experiment(experiment).runs
    views = opened(page, f"{site.url}/runs")
    expect(views.get_by_text("No saved views yet")).to_be_visible()
    page.get_by_role("button", name="Save the view").click()
    expect(page.get_by_text("The view needs a name")).to_be_visible()
    page.get_by_label("Search").fill("SD")
    save(page, "Exact <b>SD</b>")
    expect(views.get_by_role("link", name="Exact <b>SD</b>")).to_have_attribute("href", "runs?search=SD")

    views = opened(page, f"{site.url}/runs")
    views.get_by_role("link", name="Exact <b>SD</b>").click()
    page.wait_for_url("**/runs?search=SD")
    expect(page.get_by_label("Search")).to_have_value("SD")
    views = opened(page, page.url)
    page.get_by_label("Search").fill("FSD")
    page.get_by_role("button", name="Columns").click()
    columns = page.get_by_label("Columns beside the setting")
    columns.click()
    page.get_by_role("option", name="Tokens/s", exact=True).click()
    page.get_by_role("option", name="Pair", exact=True).click()
    expect(page.locator("#runs th", has_text="Tokens/s")).to_be_visible()
    expect(page.locator("#runs th", has_text="Pair")).to_have_count(0)
    save(page, "Exact <b>SD</b>")
    query = re.compile(r"^runs\?search=FSD&columns=setting,accuracy,time-per-answer,experiment,.*,throughput,")
    expect(views.get_by_role("link")).to_have_attribute("href", query)
    go(page, f"{site.url}/{views.get_by_role('link').get_attribute('href')}")
    expect(page.locator("#runs th", has_text="Tokens/s")).to_be_visible()
    expect(page.locator("#runs th", has_text="Pair")).to_have_count(0)
    page.get_by_role("button", name="Saved views").click()
    views.get_by_text("Another name").click()
    views.get_by_label("Another name of Exact <b>SD</b>").fill("Fuzzy")
    views.get_by_role("button", name="Rename").click()
    expect(views.get_by_role("link", name="Fuzzy")).to_be_visible()
    assert [view.name for view in site.repository.saved_views("runs")] == ["Fuzzy"]
    views.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(views.get_by_text("No saved views yet")).to_be_visible()

    # What another tool measured is read as soon as it is chosen, and added at a click.
    page.get_by_role("button", name="Import results").click()
    settled(page)
    answer = page.locator("#import-answer")
    page.get_by_label("Result file", exact=True).set_input_files(RESULT)
    expect(answer).to_contain_text("vllm-bench-serve.json is of vllm bench serve, with 1 measurement. Nothing is added")
    assert site.repository.count_runs(acceptance="imported") == 0
    page.get_by_label("Task of the results").fill("chat")
    page.get_by_role("button", name="Import", exact=True).click()
    expect(answer).to_contain_text("Added 1 run. They are marked as imported, and carry no verdict.")
    (imported,) = site.repository.runs(acceptance="imported")
    assert (imported.task, imported.measured_elsewhere) == ("chat", True)

    views = opened(page, f"{site.url}/compare")
    page.get_by_label("Name of the view").fill("Nothing yet")
    page.get_by_role("button", name="Save the view").click()
    expect(page.get_by_text("There is nothing to keep yet")).to_be_visible()
    query = f"runs={runs[0].id},{runs[2].id}&baseline={runs[0].id}&margin=3&price=2.5"
    views = opened(page, f"{site.url}/compare?{query}")
    save(page, "The knee")
    expect(views.get_by_role("link", name="The knee")).to_have_attribute("href", f"compare?{query}")
