"""Compare in a browser: the address reproduces the page, what is shown is text, and the exports stand alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr
import pandas as pd
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from dashboard.compare.compare_page import REFRESH_SECONDS, ComparePage
from dashboard.compare.compared_runs import experiment_runs
from dashboard.compare.sections import (
    AllFigures,
    CostSection,
    FurtherFigures,
    MatchedPanel,
    PromptPairsPanel,
    Section,
    SettingsSection,
)
from fsd_core.errors import FsdError
from fsd_core.evaluation.aggregate import summarise
from tests.tools.asking import asked
from tests.tools.built import built
from tests.tools.chromium import BROWSER_PATIENCE
from tests.tools.folds import open_tab
from tests.tools.plausible import add_finished, do_prompts, finish, sweep
from tests.tools.settled import go, polled, settled
from tests.tools.site import Site
from tests.ui.conftest import forget, problems_of

pytestmark = pytest.mark.ui
HOSTILE = '<img src=x onerror="window.broken = 1"> ${window.broken = 2} {{broken}} <b>bold</b>'
RUNS = 7
PHONE = 420
"""pixels from left to right"""


@pytest.fixture(scope="module")
def experiment(site: Site) -> str:
    """A finished experiment whose name would do harm if it were taken for anything but text."""
    return add_finished(site.repository, HOSTILE)


def open_experiment(page: Page, site: Site, experiment: str) -> None:
    page.goto(f"{site.url}/compare?experiment={experiment}")
    expect(page.locator(".cmp").first.locator("tbody tr")).to_have_count(RUNS)
    expect(page).to_have_url(re.compile("runs=.*baseline="))


@pytest.fixture(scope="module")
def opened(other_profile: BrowserContext, site: Site, experiment: str) -> Iterator[Page]:
    """The experiment in a wide window, for all tests that read, or turn what no other test looks at."""
    page = other_profile.new_page()
    problems = problems_of(page)
    open_experiment(page, site, experiment)
    settled(page)
    yield page
    forget(other_profile)
    assert not problems, problems


@pytest.fixture(scope="module")
def narrow(other_profile: BrowserContext, site: Site, experiment: str) -> Iterator[Page]:
    """The experiment as a phone shows it, for tests that read."""
    page = other_profile.new_page()
    page.set_viewport_size({"width": PHONE, "height": 900})
    open_experiment(page, site, experiment)
    settled(page)
    yield page
    page.close()


def figures(page: Page) -> Locator:
    """The table of all figures."""
    return page.get_by_role("table", name="Metrics of the runs")


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


@pytest.mark.wide
def test_without_runs_the_page_says_what_to_do(page: Page, site: Site):
    page.goto(f"{site.url}/compare")
    expect(page.locator(".fsd-empty")).to_contain_text("Nothing to compare yet")
    page.get_by_role("link", name="Start an experiment").click()
    expect(page).to_have_url(f"{site.url}/experiments")


def test_the_address_reproduces_the_page_and_the_exports_follow_the_choice(
    page: Page, site: Site, experiment: str, tmp_path: Path
):
    open_experiment(page, site, experiment)
    with page.expect_download():
        page.get_by_role("link", name="Export CSV").click()
    expect(page.locator("tr.baseline").first).to_contain_text("Target alone")
    choose(page, "Baseline", "SD · γ 5")
    expect(page.locator("tr.baseline").first).to_contain_text("SD · γ 5")
    sd = next(run.id for run in site.repository.experiment(experiment).runs if run.label.startswith("SD"))
    expect(page).to_have_url(re.compile(f"baseline={sd}"))
    expect(page.locator("#compare-link input, #compare-link textarea")).to_have_value(page.url)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export CSV").click()
    download.value.save_as(tmp_path / "runs.csv")
    frame = pd.read_csv(tmp_path / "runs.csv")
    assert frame["name"][frame["baseline"]].tolist() == ["SD · γ 5"]
    shown = page.locator(".cmp").first.inner_text()
    page.goto(page.url)
    expect(page.locator(".cmp").first).to_be_visible()
    expect(page.locator(".cmp").first).to_have_text(re.compile("baseline"))
    assert page.locator(".cmp").first.inner_text() == shown


@pytest.mark.wide
def test_all_figures_are_drawn_and_names_stay_text(opened: Page):
    page = opened
    expect(page.locator(".js-plotly-plot .gtitle")).to_have_count(10)
    assert all(box.bounding_box()["height"] > 250 for box in page.locator(".js-plotly-plot").all())  # type: ignore[index]
    expect(page.get_by_label("Whole experiment")).to_have_value(re.compile(re.escape(HOSTILE)))
    assert page.evaluate("window.broken") is None


OVERLAPS = """(figure) => {
  const box = (found) => found.getBoundingClientRect();
  const lines = [...figure.querySelectorAll('.shapelayer path')].map(box);
  const texts = [...figure.querySelectorAll('.textpoint text')].map(box);
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  return [lines.length, texts.length, texts.filter((text) => lines.some((line) => meet(text, line))).length];
}"""


@pytest.mark.wide
@pytest.mark.parametrize("window", ["opened", "narrow"])
def test_no_line_runs_through_the_labels_of_the_throughputs(request: pytest.FixtureRequest, window: str):
    page: Page = request.getfixturevalue(window)
    drawn = page.locator(".js-plotly-plot", has_text="Throughput relative to the baseline")
    expect(drawn.locator(".textpoint text")).to_have_count(RUNS)
    assert drawn.evaluate(OVERLAPS) == [RUNS, RUNS, 0]


@pytest.mark.wide
def test_the_table_ends_without_a_line_of_its_own(opened: Page):
    last = figures(opened).locator("tbody tr:last-child > *")
    widths = last.evaluate_all("all => all.map((cell) => getComputedStyle(cell).borderBottomWidth)")
    assert set(widths) == {"0px"}


@pytest.mark.wide
def test_on_a_phone_the_names_stay_while_the_numbers_scroll(narrow: Page):
    box = narrow.locator(".fsd-scroll", has=figures(narrow))
    name = box.locator("tbody th").nth(3)
    before, frame = name.bounding_box(), box.bounding_box()
    assert before is not None
    assert frame is not None
    assert before["width"] < 0.4 * frame["width"]
    assert box.locator("tbody tr").nth(3).locator("td").nth(1).bounding_box()["x"] < 300  # type: ignore[index]
    box.evaluate("element => { element.scrollLeft = 200; }")
    assert name.bounding_box() == before


@pytest.mark.wide
def test_a_draft_alone_tells_that_its_likelihood_is_its_own(opened: Page):
    cell = figures(opened).locator("tbody tr", has_text="Draft alone").locator("td").last
    expect(cell).to_contain_text("under the draft")
    expect(cell.locator(".fsd-chip")).to_have_count(0)


@pytest.mark.wide
def test_unknown_runs_in_the_link_are_named_and_the_rest_is_shown(page: Page, site: Site, experiment: str):
    known = site.repository.experiment(experiment).runs[0].id
    page.goto(f"{site.url}/compare?runs={known},nothing-of-ours,{'f' * 32}&baseline=neither")
    expect(page.locator(".cmp").first.locator("tbody tr")).to_have_count(1)
    expect(page.locator(".fsd-notice.warn").first).to_contain_text("2 runs of the link are not in this database")
    expect(page.locator(".fsd-notice.warn").nth(1)).to_contain_text("The baseline neither is not among the chosen runs")


@pytest.mark.wide
def test_an_unknown_experiment_is_told_in_a_sentence(page: Page, site: Site, experiment: str):
    page.goto(f"{site.url}/compare?experiment=nonsense")
    expect(page.locator(".fsd-notice.bad")).to_contain_text("nonsense")


@pytest.mark.wide
def test_the_answer_is_on_the_first_screen_and_only_the_open_tab_is_drawn(page: Page, site: Site, experiment: str):
    page.set_viewport_size({"width": 1440, "height": 900})
    go(page, f"{site.url}/compare?experiment={experiment}")
    told = page.locator("#answer")
    expect(told).to_contain_text("No lossy setting is within 2 points of the target yet")
    expect(told).to_contain_text("Fastest without loss: SD · γ 5")
    expect(page.locator("#answer-picture .js-plotly-plot .gtitle")).to_have_text("Accuracy against throughput")
    expect(page.locator("#answer-picture .legendtext", has_text="The answer")).to_have_count(1)
    table = page.get_by_role("table", name="Answers of the runs")
    rows = table.locator("tbody tr")
    expect(rows.last).to_be_in_viewport(ratio=1)
    assert all(row.bounding_box()["height"] < 40 for row in rows.all())  # type: ignore[index]
    expect(table.locator("tr.chosen th")).to_have_text("SD · γ 5")
    page.mouse.move(0, 0)
    table.get_by_role("button", name="Draft alone").focus()
    expect(page.locator("#fsd-about")).to_contain_text(re.compile(r"Accuracy: .* \(.* to .*\) %.*24 of 24 prompts"))
    table.get_by_role("button", name="Sort: Speed").click()
    expect(rows.first).to_contain_text("Draft alone")
    expect(table.locator("th[aria-sort]")).to_contain_text("Speed")
    table.get_by_role("button", name="Sort: Speed").click()
    expect(rows.first).to_contain_text("Target alone")
    expect(figures(page).locator("tbody tr")).to_have_count(RUNS)
    expect(page.locator("article.pair")).to_have_count(0)
    open_tab(page, "Prompts")
    expect(page).to_have_url(re.compile("&tab=prompts"))
    expect(page.locator("article.pair").first).to_be_visible()
    expect(page.locator(".js-plotly-plot")).to_have_count(1)
    expect(figures(page)).to_have_count(0)
    page.reload()
    expect(page.get_by_role("radio", name="Prompts", exact=True)).to_be_checked()
    expect(page.locator("article.pair").first).to_be_visible()
    expect(page.locator(".js-plotly-plot")).to_have_count(1)
    told.get_by_role("link", name="Measure them").click()
    expect(page.get_by_text("3 settings × 1 seed × 600 prompts")).to_be_visible()  # all that the task has


@pytest.mark.wide
def test_runs_under_way_are_refreshed_in_place_until_all_have_ended(page: Page, site: Site):
    repository = site.repository
    ids = experiment_runs(repository, repository.create_experiment(sweep("Under way"), enqueue=False))
    runs = repository.runs(ids=ids, order_by="position", descending=False)
    page.set_viewport_size({"width": 420, "height": 900})
    page.goto(f"{site.url}/compare?runs={','.join(ids)}&baseline={ids[0]}")
    answers, table = page.get_by_role("table", name="Answers of the runs"), figures(page)
    expect(answers.locator("tbody tr").first).to_contain_text("0 of 24")
    expect(page.locator(".fsd-notice.warn")).to_contain_text("7 runs are not finished")
    expect(page.locator(".js-plotly-plot:visible")).to_have_count(0)  # there is nothing to draw
    finish(repository, runs[0])
    expect(page.locator("#answer")).to_contain_text("Nothing can be said yet: 6 runs are not finished.")
    expect(page.locator(".js-plotly-plot:visible .gtitle")).to_have_count(1)
    expect(table).to_contain_text("0 of 24 prompts")
    settled(page)
    mark = "node => { node.dataset.same = 'yes'; }"
    for node in (answers, table, page.locator(".js-plotly-plot").first):
        node.evaluate(mark)
    polled(page, REFRESH_SECONDS)
    for node in (answers, table, page.locator(".js-plotly-plot").first):
        expect(node).to_have_attribute("data-same", "yes")  # nothing changed, so nothing is drawn

    table.evaluate("table => { table.parentElement.scrollLeft = 150; }")
    generations = do_prompts(repository, runs[2], 6)
    line = answers.locator("tbody tr", has_text="SD · γ 5")
    expect(line).to_contain_text(re.compile(r"\d.*\d.*6 of 24"))  # what is known so far
    expect(line).not_to_contain_text("–")
    expect(table).to_contain_text("6 of 24 prompts")
    assert table.evaluate("table => [table.parentElement.scrollLeft, table.dataset.same ?? null]") == [150, None]
    open_tab(page, "Prompts")
    choose(page, "Run B", "SD · γ 5")
    expect(page.get_by_text("shared prompts, both solve")).to_contain_text("Of 6 shared prompts")
    repository.finish_run(runs[2].id, summarise(generations, (g.records for g in generations)))
    for run in (*runs[1:2], *runs[3:]):
        finish(repository, run)
    expect(page.locator(".fsd-notice.warn")).to_have_count(0)
    expect(page.locator("#answer")).to_contain_text("Fastest without loss")
    expect(page.get_by_label("Run B")).to_have_value("SD · γ 5")
    open_tab(page, "Figures")
    expect(table.locator("tbody tr").nth(6)).to_contain_text(re.compile(r"\d to \d"))


S = TypeVar("S", bound=Section)


def section(page: ComparePage, kind: type[S]) -> S:
    """The page's section of this kind."""
    return next(one for one in page.sections if isinstance(one, kind))


def values(page: ComparePage, ids: list[str]) -> dict[Any, Any]:
    """What the fields of the page hold when two runs are compared."""
    matched, pairs = section(page, MatchedPanel), section(page, PromptPairsPanel)
    return {
        page.experiment: None, page.baseline: ids[0], page.margin: 2, page.tab: "figures",
        section(page, SettingsSection).differences_only: True, section(page, FurtherFigures).run: None,
        section(page, CostSection).price: "",
        matched.cost: "target_passes", matched.ratios: "1.3", matched.margins: "2",
        pairs.run_a: ids[0], pairs.run_b: ids[1], pairs.reader.filter: "all", pairs.reader.size: 5,
    }  # fmt: skip


def test_a_tick_redraws_what_has_changed_of_what_is_open_and_stops_at_the_end(site: Site):
    repository = site.repository
    ids = experiment_runs(repository, repository.create_experiment(sweep("Watched"), enqueue=False))[:4:3]
    with gr.Blocks():
        page = ComparePage(repository)
    fields = values(page, ids)
    shown: dict[str, str] = {}

    def tick() -> list[Any]:
        """All answers of one event."""
        question, answers = None, []
        while question is None or question.postponed:
            question = asked(fields, {"runs": ",".join(ids)}, shown=dict(shown))
            answers.append(page.redraw(question))
            shown.update(question.shown)
            for gone in shown.keys() - question.shown.keys():
                del shown[gone]
        return answers

    first = tick()
    pairs, further = section(page, PromptPairsPanel).reader.pairs, section(page, FurtherFigures)
    assert first[0][page.clock].active
    assert tick() == [{}]
    for run in repository.runs(ids=ids):
        finish(repository, run)
    last = tick()
    assert not last[0][page.clock].active
    table, tables = section(page, AllFigures).table, section(page, MatchedPanel).tables
    assert {table, page.warnings, page.answer.sentence, page.answer.table} <= set(last[0])
    assert {page.answer.picture, *further.drawn, tables} <= {part for answer in last[1:] for part in answer}
    others = {section(page, SettingsSection).settings, pairs}
    assert not others & {part for answer in (*first, *last) for part in answer}
    assert tick() == [{}]

    fields[page.tab] = "prompts"  # the figures keep what they show, until something else is compared
    opened = tick()
    assert pairs in opened[-1]
    assert not {*further.drawn} & {part for answer in opened for part in answer}
    fields[page.margin] = 5
    (emptied,) = [answer for answer in tick() if further.histogram in answer]
    assert {emptied[part] for part in further.drawn} == {None}
    fields[page.tab] = "figures"
    assert {*further.drawn} <= {part for answer in tick() for part in answer}


@pytest.mark.wide
def test_a_price_is_chosen_and_stands_in_the_link(site: Site, experiment: str):
    ids = experiment_runs(site.repository, experiment)[:2]

    def build() -> ComparePage:
        with gr.Blocks(analytics_enabled=False):
            return ComparePage(site.repository)

    page = built(build)
    cost = section(page, CostSection)
    address = {"runs": ",".join(ids), "baseline": ids[0]}
    bare = asked(values(page, ids), address)
    assert page.redraw(bare)[cost.table] == ""  # not everybody has a price
    assert bare.new_address is not None
    assert "price" not in bare.new_address
    linked = asked(values(page, ids), address | {"price": "2.5"})
    drawn = page.redraw(linked)
    assert linked.filled[cost.price] == "2.5"
    assert "Cost per solved" in drawn[cost.table]
    assert ">2.5<" in drawn[cost.table]
    assert linked.new_address == f"{bare.new_address}&price=2.5"
    assert cost.price.value == ""  # and not 0, which is no price
    hidden = asked(values(page, ids), address | {"price": "2.5", "tab": "settings"})
    assert cost.table not in page.redraw(hidden)
    assert (hidden.filled[cost.price], hidden.filled[page.tab]) == ("2.5", "settings")
    assert hidden.new_address == f"{bare.new_address}&tab=settings&price=2.5"
    for price, told, query in (
        ("40", ">40<", "&price=40"), ("", "", ""), ("-1", "above 0", ""), ("x", "a number", ""),
    ):  # fmt: skip
        fields = values(page, ids) | {cost.price: price}
        typed = asked(fields, address, shown=dict(linked.shown))
        assert told in page.redraw(typed)[cost.table]
        assert typed.new_address == f"{bare.new_address}{query}"


@pytest.mark.wide
def test_an_error_takes_the_place_of_what_is_compared_and_the_fields_stay(site: Site, experiment: str):
    ids = experiment_runs(site.repository, experiment)[:2]
    with gr.Blocks():
        page = ComparePage(site.repository)
    fields = values(page, ids) | {page.baseline: ids[1], page.margin: 3}
    failed = asked(fields, {"runs": ",".join(ids), "baseline": ids[0], "margin": "5"}, shown={"table": "drawn"})
    failed.shown.clear()
    told = page.fail(failed, FsdError("The database does not answer."))
    assert "does not answer" in told[page.warnings]
    assert (told[page.results].visible, told[page.clock].active) == (False, True)
    again = asked(fields, failed.address, shown=failed.shown)
    assert page.redraw(again)[page.results].visible
    assert not {page.baseline, page.margin} & again.filled.keys()
    assert again.new_address is not None
    assert again.new_address.endswith(f"&baseline={ids[1]}&margin=3")


@pytest.mark.wide
def test_settings_show_differences_until_all_are_asked_for(opened: Page):
    open_tab(opened, "Settings")
    settings = opened.get_by_role("table", name="Settings of the runs")
    expect(settings).to_contain_text("Threshold")
    expect(settings).not_to_contain_text("Temperature")
    opened.get_by_label("Differences only").uncheck()
    expect(settings).to_contain_text("Temperature")


@pytest.mark.wide
def test_two_runs_prompt_by_prompt(opened: Page):
    page = opened
    open_tab(page, "Prompts")
    expect(page.get_by_text("shared prompts, both solve")).to_contain_text("Of 24 shared prompts")
    page.get_by_label("All", exact=True).check()
    expect(page.get_by_text("24 prompts of 24, 1 to 5 shown")).to_be_visible()  # a list that is replaced is not turned
    expect(page.locator("article.pair")).to_have_count(5)
    page.get_by_role("button", name="Next prompts").click()
    expect(page.locator("article.pair").first).to_contain_text("Prompt 6,")
    expect(page.locator("article.pair mark").first).to_be_visible()


@pytest.mark.wide
def test_csv_has_every_run(opened: Page, site: Site, experiment: str, tmp_path: Path):
    with opened.expect_download() as download:
        opened.get_by_role("link", name="Export CSV").click()
    download.value.save_as(tmp_path / "runs.csv")
    frame = pd.read_csv(tmp_path / "runs.csv")
    assert list(frame["run"]) == [run.id for run in site.repository.experiment(experiment).runs]
    assert frame["accuracy"].between(0, 1).all()
    assert frame["baseline"].tolist() == [True] + [False] * (RUNS - 1)
    assert download.value.suggested_filename == "comparison.csv"
    assert [path for path in site.temporary.rglob("*") if path.is_file()] == []


@pytest.mark.wide
@pytest.mark.parametrize(
    ("query", "status", "sentence"),
    [
        ("", 400, "No run is named"),
        ("runs=,%20,", 400, "No run is named"),
        (f"runs={'f' * 32},nonsense", 404, "None of these runs is in this database"),
        ("runs=%00%27%3Cb%3E", 404, "None of these runs is in this database"),
    ],
)
@pytest.mark.parametrize("name", ["csv", "html"])
def test_an_export_that_cannot_be_is_told(
    profile: BrowserContext, site: Site, name: str, query: str, status: int, sentence: str
):
    answer = profile.request.get(f"{site.url}/export/comparison.{name}?{query}")
    assert (answer.status, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    assert answer.text().startswith(sentence)


@pytest.mark.wide
def test_the_exported_page_needs_nothing_else(opened: Page, browser: Browser, tmp_path: Path):
    with opened.expect_download() as download:
        opened.get_by_role("link", name="Export HTML").click()
    file = tmp_path / "comparison.html"
    download.value.save_as(file)
    context = browser.new_context(offline=True)
    context.set_default_timeout(BROWSER_PATIENCE)
    alone = context.new_page()
    requests: list[str] = []
    alone.on("request", lambda request: requests.append(request.url))
    alone.goto(file.as_uri())
    expect(alone.locator(".js-plotly-plot .gtitle")).to_have_count(9)
    expect(alone.locator(".cmp").first.locator("tbody tr")).to_have_count(RUNS)
    for figure in alone.locator(".figures > div").all():
        frame, drawing = figure.bounding_box(), figure.locator("svg.main-svg").first.bounding_box()
        assert frame is not None
        assert drawing is not None
        assert drawing["width"] <= frame["width"]
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert alone.evaluate("window.broken") is None
    context.close()


@pytest.mark.wide
def test_a_narrow_page_does_not_scroll_sideways(narrow: Page):
    assert narrow.evaluate("document.documentElement.scrollWidth") <= PHONE


@pytest.mark.wide
def test_nor_do_the_experiments(page: Page, site: Site, experiment: str):
    page.set_viewport_size({"width": PHONE, "height": 900})
    page.goto(f"{site.url}/experiments?experiment={experiment}")
    expect(page.locator(".exp").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
