"""Reports in a browser: saved on Compare, read on their page, taken along as a file, deleted by those who may."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.tools import plausible
from tests.tools.folds import unfold
from tests.tools.settled import go
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
    expect(page.get_by_text("Title")).to_be_visible()  # it needs one
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
