"""The list of runs and one run opened, in a browser, over a database filled through the repository."""

from __future__ import annotations

import re
from pathlib import Path

import gradio as gr
import pytest
from playwright.sync_api import Locator, Page, expect
from sqlalchemy import update

from dashboard.runs.opened_run import OpenedRun
from fsd_core.config import RunConfig, SettingConfig
from fsd_core.metrics import conditions_of
from fsd_core.storage.tables import GenerationRow, MeasurementSessionRow
from tests.tools import plausible
from tests.tools.asking import asked
from tests.tools.folds import unfold
from tests.tools.real_tokens import HOSTILE, TEXTS, add_run
from tests.tools.settled import acts, clockless, go, settled
from tests.tools.site import Site
from tests.tools.tracking_examples import generation

pytestmark = pytest.mark.ui

EXPERIMENTS = 8  # of seven runs each


@pytest.fixture(scope="module")
def filled(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Experiments of seven runs, and one run that failed."""
    for i in range(EXPERIMENTS):
        plausible.add_finished(site.repository, f"Series-{i} {HOSTILE}", limit=3, seeds=(i,))
    run = site.repository.create_run(RunConfig(limit=3))
    site.repository.fail_run(run, "The folder of the pair is empty: put the weights back.")
    return site


@pytest.fixture(scope="module")
def real(site: Site, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a run whose tokens have texts."""
    run = add_run(site.repository, tmp_path_factory.mktemp("pair"))
    site.repository.mark_synced(site.repository.run(run), "abc123")
    return run


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


def rows(page: Page) -> Locator:
    return page.locator("#runs tbody tr")


@pytest.mark.wide
def test_an_empty_list_says_what_to_do(page: Page, site: Site) -> None:
    if site.repository.count_runs():
        pytest.fail("This test comes before the ones that fill the database.")
    page.goto(f"{site.url}/runs")
    expect(page.locator("#runs")).to_contain_text("No runs yet")
    page.get_by_role("link", name="Start an experiment").click()
    expect(page).to_have_url(re.compile("/experiments$"))


@pytest.mark.wide
def test_filters_and_search_leave_what_matches_in_the_order_that_is_chosen(page: Page, filled: Site) -> None:
    go(page, f"{filled.url}/runs")
    with clockless(page):
        choose(page, "Algorithm", "SD")
        expect(rows(page)).to_have_count(EXPERIMENTS)  # and not because the list is looked at anyway
    page.goto(f"{filled.url}/runs?algorithm=speculative")  # a page that looks again
    expect(rows(page)).to_have_count(EXPERIMENTS)
    page.get_by_label("Search").first.fill("Series-3")
    expect(rows(page)).to_have_count(1)
    choose(page, "Algorithm", "All")
    expect(rows(page)).to_have_count(7)
    choose(page, "Status", "Failed")
    expect(page.locator("#runs")).to_contain_text("No run matches")
    page.get_by_label("Search").first.fill("")
    expect(rows(page)).to_have_count(1)
    choose(page, "Status", "All")
    expect(rows(page)).to_have_count(50)
    choose(page, "Order", "Throughput, highest first")
    expect(rows(page).first).to_contain_text("Draft alone")


@pytest.mark.wide
def test_the_address_keeps_the_filters_for_a_link_and_for_the_way_back(page: Page, filled: Site) -> None:
    page.goto(f"{filled.url}/runs")
    choose(page, "Algorithm", "SD")
    choose(page, "Order", "Oldest first")
    page.get_by_label("Search").first.fill("Series-3 <img")
    expect(rows(page)).to_have_count(1)
    expect(page).to_have_url(re.compile(r"/runs\?search=Series-3\+%3Cimg&algorithm=speculative&sort=oldest$"))
    rows(page).get_by_role("link").first.click()
    expect(page.locator("h1:visible")).to_contain_text("SD")
    questions = acts(page)
    page.go_back()
    expect(rows(page)).to_have_count(1)
    expect(page.get_by_label("Search").first).to_have_value("Series-3 <img")
    expect(page.get_by_label("Algorithm")).to_have_value("SD")
    rows(page).evaluate("row => { row.dataset.same = 'yes'; }")
    settled(page)
    expect(rows(page)).to_have_attribute("data-same", "yes")  # what an address asks for is drawn once
    assert questions == []

    page.get_by_label("Search").first.fill("")
    choose(page, "Algorithm", "All")
    choose(page, "Order", "Newest first")
    expect(page).to_have_url(re.compile("/runs$"))
    page.goto(f"{filled.url}/runs?status=failed&sort=nonsense&task=%3Cb%3E")
    expect(rows(page)).to_have_count(1)
    expect(page.get_by_label("Status", exact=True)).to_have_value("Failed")
    expect(page.get_by_label("Task", exact=True)).to_have_value("All")


@pytest.mark.wide
def test_filters_offer_the_pairs_that_have_runs_and_each_row_names_its_own(page: Page, filled: Site) -> None:
    elsewhere = filled.repository.create_run(RunConfig(setting=SettingConfig(pair="path:elsewhere"), limit=3))
    filled.repository.cancel_run(elsewhere)
    try:
        go(page, f"{filled.url}/runs?pair=qwen2.5-7b")
        expect(page.locator("#runs")).to_contain_text("No run matches")
        expect(page.get_by_label("Pair", exact=True)).to_have_value("Qwen 2.5 7B with 0.5B")
        choose(page, "Pair", "path:elsewhere")
        expect(rows(page)).to_have_count(1)
        expect(rows(page)).to_contain_text("path:elsewhere")
        settled(page)
        page.get_by_label("Pair", exact=True).click()
        expect(page.get_by_role("option")).to_have_text([re.compile(name) for name in ("All", "Bundled", "elsewhere")])
    finally:
        filled.repository.delete_run(elsewhere)


@pytest.mark.wide
def test_a_choice_counts_at_once_and_a_text_that_is_pasted_or_deleted_as_one_that_is_typed(
    page: Page, filled: Site
) -> None:
    go(page, f"{filled.url}/runs")
    choose(page, "Status", "Failed")
    page.get_by_label("Search").first.focus()
    expect(rows(page)).to_have_count(1)
    expect(page).to_have_url(re.compile(r"/runs\?status=failed$"))

    choose(page, "Status", "All")
    expect(page).to_have_url(re.compile("/runs$"))
    expect(rows(page)).to_have_count(50)
    settled(page)
    search = page.get_by_label("Search").first
    search.fill("Series-3 <img")  # without a key, as the mouse pastes
    expect(page).to_have_url(re.compile(r"/runs\?search=Series-3\+%3Cimg$"))
    expect(rows(page)).to_have_count(7)
    search.press("ControlOrMeta+a")
    search.press("Delete")
    expect(page).to_have_url(re.compile("/runs$"))
    expect(rows(page)).to_have_count(50)


@pytest.mark.wide
def test_many_runs_come_in_pages_and_ticks_outlast_paging_and_go_to_compare(page: Page, filled: Site) -> None:
    page.goto(f"{filled.url}/runs")
    expect(rows(page)).to_have_count(50)
    expect(page.get_by_text("1 to 50 of 57 runs")).to_be_visible()
    rows(page).nth(0).get_by_role("checkbox").check()
    page.get_by_role("button", name="Next").first.click()
    expect(rows(page)).to_have_count(7)
    assert page.locator("#runs input:checked").count() == 0
    rows(page).nth(1).get_by_role("checkbox").check()
    link = page.get_by_role("link", name="Compare selected (2)")
    assert re.search(r"^compare\?runs=[0-9a-f]{32},[0-9a-f]{32}$", link.get_attribute("href") or "")
    page.get_by_role("button", name="Previous").first.click()
    expect(rows(page)).to_have_count(50)
    assert page.locator("#runs input:checked").count() == 1
    link.click()
    expect(page).to_have_url(re.compile(r"/compare\?runs="))


def test_a_run_shows_its_numbers_figures_and_link_and_its_prompts_are_read_token_by_token_and_filtered(
    page: Page, site: Site, real: str
) -> None:
    page.goto(f"{site.url}/runs?run={real}")
    expect(page.locator("h1:visible")).to_contain_text("FSD reducible")
    expect(page.locator(".fsd-tile").first).to_contain_text("50 %")
    expect(page.locator(".fsd-tile:visible")).to_have_count(4)
    expect(page).to_have_title(re.compile("^FSD reducible.* – FSD Lab$"))
    unfold(page, "All figures")
    expect(page.locator(".fsd-tile", has_text="Target passes")).to_be_visible()
    assert page.locator(".fsd-tile:visible").count() > 10
    expect(page.locator(".js-plotly-plot:visible")).to_have_count(3)
    href = page.get_by_role("link", name="Open in MLflow").get_attribute("href")
    assert href == "http://127.0.0.1:5999/#/runs/abc123"
    page.get_by_text("Settings and provenance").click()
    expect(page.locator("details", has_text="Settings and provenance")).to_contain_text("torch 2.13.0")
    expect(page).to_have_url(f"{site.url}/runs?run={real}")

    prompt = page.locator("#prompt")
    expect(prompt.locator(".toks")).to_have_text(TEXTS[0], use_inner_text=True)
    page.locator("#prompts tbody tr").nth(1).get_by_role("button").click()
    expect(prompt.locator(".toks")).to_have_text(TEXTS[1], use_inner_text=True)
    expect(prompt.locator(".run-question")).to_contain_text(HOSTILE)
    prompt.locator(".tok.correction").first.click()
    expect(page.locator("#tok-detail")).to_contain_text("in place of a token that was rejected")
    assert page.locator("#prompt img, #prompts img").count() == 0
    page.keyboard.press("Escape")

    prompts = page.locator("#prompts tbody tr")
    expect(prompts).to_have_count(2)
    choose(page, "Outcome", "Wrong")
    expect(prompts).to_have_count(1)
    page.get_by_label("Search").last.fill("no such words")
    expect(page.locator("#prompts")).to_contain_text("No prompt matches")


@pytest.mark.wide
def test_a_run_under_way_fills_up_by_itself(page: Page, site: Site) -> None:
    experiment = site.repository.create_experiment(plausible.sweep("Now", limit=4), enqueue=False)
    run = site.repository.experiment(experiment).runs[0]
    page.goto(f"{site.url}/runs?run={run.id}")
    expect(page.get_by_text("It is waiting for the worker.")).to_be_visible()
    plausible.finish(site.repository, run)
    expect(page.locator("#prompts tbody tr")).to_have_count(4)
    expect(page.locator("h1:visible")).to_contain_text("finished")


@pytest.mark.wide
def test_a_run_that_failed_tells_why_and_one_that_is_not_there_too(page: Page, filled: Site, tmp_path: Path) -> None:
    failed = filled.repository.runs(status="failed")[0]
    page.goto(f"{filled.url}/runs?run={failed.id}")
    expect(page.get_by_text("The folder of the pair is empty: put the weights back.")).to_be_visible()
    page.goto(f"{filled.url}/runs?run=<img src=x>")
    expect(page.get_by_role("alert")).to_contain_text("<img src=x>")


@pytest.mark.wide
def test_a_run_that_failed_is_resumed_and_deleted(page: Page, filled: Site) -> None:
    repository = filled.repository
    run = repository.create_run(RunConfig(limit=3))
    repository.record_generation(run, generation(0))
    repository.fail_run(run, "The worker was lost.")
    page.goto(f"{filled.url}/runs?run={run}")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".fsd-h1 .fsd-pill")).to_have_text("queued")
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    job = repository.claim(("run",), 600)
    assert job is not None
    assert (job.id, job.claim_token is not None) == (run, True)
    repository.finish_job(run, str(job.claim_token), "failed", "The worker was lost again.")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("with 1 prompt and their traces, here and in MLflow?")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("alert")).to_contain_text("with 1 prompt")
    expect(page.locator("#prompts")).to_be_hidden()
    assert repository.count_runs(id_prefix=run) == 0
    page.get_by_role("link", name="See all runs").click()
    expect(rows(page)).to_have_count(50)


@pytest.mark.wide
def test_a_run_that_is_slower_than_the_target_alone_says_why(site: Site) -> None:
    target, _, sd, *_ = (
        run.id for run in site.repository.experiment(plausible.add_finished(site.repository, "Slow")).runs
    )
    with site.repository._database.session() as session:
        session.execute(
            update(GenerationRow).where(GenerationRow.run_id == sd).values(seconds=3 * GenerationRow.seconds)
        )
    with gr.Blocks():
        page = OpenedRun(site.repository, None)
    fields = {page.outcome: "all", page.search: "", page.order: "", **dict.fromkeys(page.panel.forms, "")}
    assert "Slower than the target alone. " in page.redraw(asked(fields), sd)[page.tiles]
    assert "Slower" not in page.redraw(asked(fields), target)[page.tiles]


@pytest.mark.wide
def test_a_run_that_went_on_with_other_threads_says_so_in_a_narrow_window(page: Page, site: Site) -> None:
    experiment = plausible.add_finished(site.repository, "Resumed", limit=4)
    run = site.repository.experiment(experiment).runs[2]
    with site.repository._database.session() as session:
        conditions = conditions_of(plausible.PROVENANCE | {"threads": 1})
        session.add(sitting := MeasurementSessionRow(run_id=run.id, conditions=conditions))
        session.flush()
        last = GenerationRow.run_id == run.id, GenerationRow.position == 3
        session.execute(update(GenerationRow).where(*last).values(sitting_id=sitting.id))
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(f"{site.url}/runs?run={run.id}")
    said = "Prompts 1 to 3 were measured with 2 threads, the other with 1 thread."
    expect(page.get_by_text(said)).to_be_visible()
    mark = page.get_by_role("img", name="differ in number of threads").first
    expect(mark).to_be_visible()
    assert mark.bounding_box()["width"] < 20  # type: ignore[index]
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.goto(f"{site.url}/runs")
    for heading in ("Accuracy", "s/answer"):  # in sight without a scroll
        box = page.locator("#runs th", has_text=heading).bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 400
    page.goto(f"{site.url}/compare?experiment={experiment}")
    expect(page.get_by_text("The runs differ in number of threads (1, 2)")).to_be_visible()
    table = page.get_by_role("table", name="Metrics of the runs")
    expect(table.get_by_role("img", name="differ in number of threads")).to_have_count(6)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.wide
def test_the_worst_prompts_come_first_where_the_address_asks_for_them(page: Page, site: Site) -> None:
    run = site.repository.experiment(plausible.add_finished(site.repository, "Worst")).runs[2]
    worst = site.repository.generations(run.id, worst_first=True, limit=1)[0].position
    page.goto(f"{site.url}/runs?run={run.id}&prompts=worst")
    expect(page.locator("#prompts tbody tr").first.locator("td").first).to_have_text(str(worst + 1))
    expect(page.locator("#prompt")).to_contain_text(f"Prompt {worst + 1}")
    page.get_by_label("Order", exact=True).locator("visible=true").click()
    page.get_by_role("option", name="As in the task").click()
    expect(page.locator("#prompts tbody tr").first.locator("td").first).to_have_text("1")
