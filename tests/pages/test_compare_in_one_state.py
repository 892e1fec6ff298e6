"""Compare shows one state: table, figures, fields, ticks and address are of the same runs and the same baseline."""

from __future__ import annotations

import json
from collections.abc import Sequence

import gradio as gr
import pytest

from fsd_core.config import SettingConfig
from fsd_core.evaluation.aggregate import summarise
from fsd_core.roles import Person
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from tests.tools.plausible import do_prompts, finish, sweep
from tests.tools.searched import LOSSY, ONE_LOST, search
from tests.tools.shown_page import Application, ShownPage

ANN = Person("Ann", "author")


@pytest.fixture
def runs(repository: Repository) -> Sequence[RunView]:
    return repository.experiments()[0].runs


@pytest.fixture
def whole(application: Application, runs: Sequence[RunView]) -> ShownPage:
    """The experiment, whose figures and prompts were looked at."""
    page = application.open(f"compare?experiment={runs[0].experiment_id}", ANN)
    page.choose("Details", "Prompts")
    page.choose("Details", "Figures")
    return page


def address(*runs: RunView, more: str = "") -> str:
    return f"compare?runs={','.join(run.id for run in runs)}&baseline={runs[0].id}{more}"


def lines(page: ShownPage) -> list[str]:
    return page.rows("Answers of the runs")


def tick(page: ShownPage, *runs: RunView) -> None:
    """What the list of runs wants once these are ticked in it, as it was drawn last."""
    (drawn,) = (
        one.attributes["data-list"]
        for one in page.elements("div", "details", "section")
        if "data-list" in one.attributes
    )
    page.want(runs={"ids": [run.id for run in runs], "list": drawn})


def is_baseline(page: ShownPage, run: RunView) -> bool:
    """Whether the line that is marked as the baseline's is this run's, in the answers and among all figures."""
    marked = [one.text for one in page.elements("tr") if "baseline" in (one.attributes.get("class") or "")]
    return len(marked) == 2 and all(run.label in line for line in marked)


def followed(page: ShownPage, *runs: RunView) -> None:
    """The table, the ticks and the address are of these runs."""
    assert len(lines(page)) == len(runs)
    assert page.address["runs"].split(",") == [run.id for run in runs]
    assert page.field("Link to this comparison").startswith(f"?runs={page.address['runs']}")


def drawn(page: ShownPage) -> str:
    """All that the figures say."""
    figures = (page.values[part] for part in page.built.parts if isinstance(part, gr.Plot))
    return " ".join(json.dumps(json.loads(figure.to_json()), ensure_ascii=False) for figure in figures if figure)


def test_a_second_look_draws_nothing(whole: ShownPage) -> None:
    assert len(drawn(whole)) > 1000
    assert whole.look() == set()


def test_ticks_and_an_experiment_take_each_others_place(application: Application, runs: Sequence[RunView]) -> None:
    page = application.open(address(*runs[:2]), ANN)
    followed(page, *runs[:2])
    tick(page, *runs[:4])
    followed(page, *runs[:4])
    page.want(runs={"experiment": runs[0].experiment_id})
    followed(page, *runs)
    tick(page, *runs[1:])
    followed(page, *runs[1:])
    assert page.field("Whole experiment") is None
    assert page.field("Baseline") == runs[1].id
    assert is_baseline(page, runs[1])
    page.want(runs={"experiment": runs[0].experiment_id})  # once more
    followed(page, *runs)


@pytest.mark.parametrize("chosen", [2, 4])
def test_a_baseline_that_is_chosen_counts_for_all_parts(whole: ShownPage, runs: Sequence[RunView], chosen: int) -> None:
    assert f"that of {runs[0].label}" in drawn(whole)
    whole.choose("Baseline", runs[chosen].label)
    assert is_baseline(whole, runs[chosen])
    assert whole.field("Baseline") == whole.address["baseline"] == runs[chosen].id
    assert f"that of {runs[chosen].label}" in drawn(whole)
    assert f"that of {runs[0].label}" not in drawn(whole), "a figure is of the former choice"
    whole.choose("Details", "Prompts")
    assert whole.field("Run A") == runs[chosen].id
    assert whole.look() == set()


def test_a_margin_that_is_chosen_counts_for_all_parts(application: Application, runs: Sequence[RunView]) -> None:
    page = application.open(address(runs[1], runs[0], runs[2]), ANN)
    for margin in ("12.5", "3.5"):
        page.type("Margin", float(margin))
        assert f"within {margin} points" in page.html
        assert page.address["margin"] == margin
    assert "12.5 points" not in page.html


def test_a_filter_of_the_prompts_is_theirs(application: Application, runs: Sequence[RunView]) -> None:
    page = application.open(address(runs[0], runs[3], more="&tab=prompts"), ANN)
    page.choose("Prompts", "All")
    assert "24 prompts of 24, 1 to 5 shown" in page.text
    assert len(page.elements("article")) == 5
    page.press("Next prompts")
    assert "6 to 10 shown" in page.text
    page.choose("Prompts", "Marked")
    assert "No prompt of this kind" in page.text
    assert page.elements("article") == []


def test_the_prompt_of_a_link_is_shown_until_other_runs_are_chosen(
    application: Application, runs: Sequence[RunView]
) -> None:
    pair = f"&a={runs[0].id}&b={runs[3].id}&prompt=8"
    page = application.open(address(*runs[:4], more=pair), ANN)
    assert page.elements("article")[2].text.startswith("Prompt 8,")
    assert page.address["prompt"] == "8"
    page.choose("Run B", runs[2].label)
    assert "prompt" not in page.address


def test_a_links_prompt_that_cannot_be_shown_is_named(application: Application, runs: Sequence[RunView]) -> None:
    page = application.open(address(*runs[:2], more=f"&a={runs[0].id}&b=neither&prompt=8"), ANN)
    assert "these runs are not compared: neither." in page.text
    page = application.open(address(*runs[:2], more=f"&a={runs[0].id}&b={runs[1].id}&prompt=99"), ANN)
    assert "have no prompt 99 in common" in page.text


def test_runs_under_way_keep_what_was_ticked_and_are_refreshed_until_they_end(
    application: Application, repository: Repository
) -> None:
    experiment = repository.create_experiment(sweep("Late", limit=8), enqueue=False)
    under_way = repository.experiment(experiment).runs
    page = application.open(address(*under_way[:2]), ANN)
    assert "0 of 8" in lines(page)[0]
    assert "Nothing can be said before the baseline is measured. 2 runs are not finished." in page.text
    tick(page, *under_way[:3])
    finish(repository, under_way[0])
    generations = do_prompts(repository, under_way[2], 6)
    page.look()
    followed(page, *under_way[:3])
    assert "6 of 8" in lines(page)[2]
    finish(repository, under_way[1])
    repository.finish_run(under_way[2].id, summarise(generations, (one.records for one in generations)))
    page.look()
    assert "not finished" not in page.text
    assert page.look() == set()


def test_good_that_is_sent_twice_or_in_two_tabs_stays(
    application: Application, repository: Repository, runs: Sequence[RunView]
) -> None:
    tabs = [application.open(address(runs[0], runs[5], more="&tab=prompts"), ANN) for _ in range(2)]
    for tab in tabs:
        tab.choose("Prompts", "All")
        tab.do("mark", {"run": runs[5].id, "position": "0", "verdict": "good"}, lost=True)
        assert [one.text for one in tab.elements("button") if one.attributes.get("aria-pressed") == "true"] == ["Good"]
    tabs[0].do("mark", {"run": runs[5].id, "position": "0", "note": "Well said."})
    (mark,) = repository.marks([runs[5].id])
    assert (mark.verdict, mark.note, mark.who) == ("good", "Well said.", "Ann")
    tabs[1].look()
    assert "Well said." in tabs[1].html


def test_a_report_whose_answer_is_lost_is_saved_once(whole: ShownPage, repository: Repository) -> None:
    whole.unfold("Save as a report")
    whole.press("Save the report")
    assert "Title" in whole.text
    assert repository.reports() == []
    whole.type("Report title", "Which threshold")
    whole.type("Report text", "Keep **js ≤ 0.2**.")
    whole.press("Save the report", lost=True)
    whole.again()
    (saved,) = repository.reports()
    assert (saved.title, saved.who) == ("Which threshold", "Ann")
    assert f"reports?report={saved.id}" in whole.links()
    assert (whole.field("Report title"), whole.field("Report text")) == ("", "")


def test_a_view_whose_answer_is_lost_is_saved_once(whole: ShownPage, repository: Repository) -> None:
    whole.type("Name of the view", "Ours")
    whole.press("Save the view", lost=True)
    (view,) = repository.saved_views("compare")
    assert view.query == whole.field("Link to this comparison").removeprefix("?")
    assert "Ours" in whole.text
    assert whole.field("Name of the view") == ""


def shown(page: ShownPage) -> list[bool]:
    """Whether all figures, the settings and the prompts of two runs are shown."""
    tables = [bool(page.rows(f"{name} of the runs")) for name in ("Metrics", "Settings")]
    return [*tables, "shared prompts" in page.text]


def test_what_is_in_a_tab_is_drawn_once_it_is_opened(application: Application, runs: Sequence[RunView]) -> None:
    page = application.open(address(*runs), ANN)
    assert shown(page) == [True, False, False]
    assert "tab" not in page.address
    for i, title in enumerate(("Settings", "Prompts", "Figures")):
        page.choose("Details", title)
        assert shown(page) == [place == (i + 1) % 3 for place in range(3)]
        assert len(lines(page)) == 7, "the answers are always above"
        assert page.address.get("tab", "figures") == title.lower()
        assert page.field("Link to this comparison").endswith("&tab=" + title.lower()) == (title != "Figures")
        assert page.look() == set()
    page.choose("Details", "Settings")
    page.choose("Baseline", runs[1].label)
    hidden = [str(value) for part, value in page.values.items() if isinstance(part, gr.HTML)]
    assert not [html for html in hidden if "Metrics of the runs" in html], "who opens the tab would see what is gone"


@pytest.mark.parametrize(
    ("more", "tab"),
    [
        ("", "figures"), ("&tab=figures", "figures"), ("&tab=settings", "settings"), ("&tab=prompts", "prompts"),
        ("&tab=none", "figures"), ("&open=further,matched-points", "figures"), ("&open=all-figures,prompts", "figures"),
        ("&open=settings", "settings"), ("&open=prompts,report", "prompts"),
        ("&open=report", "figures"), ("&open=settings&tab=prompts", "prompts"),
    ],
)  # fmt: skip
def test_a_link_leads_to_its_tab_and_what_is_copied_there_leads_back(
    application: Application, runs: Sequence[RunView], more: str, tab: str
) -> None:
    page = application.open(address(*runs[:4], more=more), ANN)
    assert page.field("Details") == tab
    again = application.open("compare" + page.field("Link to this comparison"), ANN)
    assert (again.field("Details"), shown(again)) == (tab, shown(page))


def test_a_prompt_is_in_the_tab_of_the_prompts_until_another_is_opened(
    application: Application, runs: Sequence[RunView]
) -> None:
    page = application.open(address(*runs[:4], more=f"&a={runs[0].id}&b={runs[3].id}&prompt=8"), ANN)
    assert page.field("Details") == "prompts"
    page.choose("Details", "Figures")
    again = application.open("compare" + page.field("Link to this comparison"), ANN)
    assert (again.field("Details"), again.address["prompt"]) == ("figures", "8")
    again.choose("Details", "Prompts")
    assert again.elements("article")[2].text.startswith("Prompt 8,")


def test_a_tab_that_is_chosen_before_any_run_stays(application: Application, runs: Sequence[RunView]) -> None:
    page = application.open("compare?tab=settings", ANN)
    assert shown(page) == [False, False, False]
    page.want(runs={"ids": [run.id for run in runs]})
    assert shown(page) == [False, True, False]


def test_what_has_nothing_to_say_is_left_out(
    application: Application, repository: Repository, runs: Sequence[RunView]
) -> None:
    def headings(page: ShownPage) -> list[str]:
        return [one.text for one in page.elements("h2")]

    all_of_them = ["All figures", "At matched points", "Further figures", "Cost and energy"]
    assert headings(application.open(address(*runs), ANN)) == all_of_them
    page = application.open(address(runs[0], runs[1]), ANN)
    assert headings(page) == ["All figures", "Further figures", "Cost and energy"]
    page.want(runs={"experiment": runs[0].experiment_id})
    assert headings(page) == all_of_them
    begun = repository.experiment(repository.create_experiment(sweep("New", limit=8), enqueue=False)).runs
    assert headings(application.open(address(*begun[:2]), ANN)) == ["All figures", "Cost and energy"]


def test_the_page_says_which_experiments_it_shows(
    application: Application, repository: Repository, runs: Sequence[RunView]
) -> None:
    def subject(page: ShownPage) -> list[str]:
        return [one.text for one in page.elements("p") if one.attributes.get("class") == "cmp-subject"]

    experiment = repository.experiment(runs[0].experiment_id or "")
    named = f"{experiment.name} ({experiment.created_at:%d %b %Y %H:%M}"
    page = application.open(f"compare?experiment={experiment.id}", ANN)
    assert subject(page) == [f"{named}, 7 runs)"]
    assert f"runs?experiment={experiment.id}" in page.links()
    other = repository.experiment(repository.create_experiment(sweep("<b>New</b>", limit=8), enqueue=False))
    page = application.open(address(*runs[:2], other.runs[0]), ANN)
    (told,) = subject(page)
    assert told.startswith(f"{named}, 2 runs), <b>New</b> (")
    assert told.endswith(", 1 run)")
    tick(page)
    assert subject(page) == []
    others = [repository.create_experiment(sweep(f"No. {i}", limit=8), enqueue=False) for i in range(4)]
    page = application.open(address(*(repository.experiment(one).runs[0] for one in others)), ANN)
    assert subject(page)[0].endswith("and 1 more")


def test_a_calibration_brings_its_margin(
    application: Application, repository: Repository, runs: Sequence[RunView]
) -> None:
    """Into the comparison and into the first use; a margin that somebody typed stays."""
    searched = search(repository, dict.fromkeys(LOSSY, ONE_LOST))
    page = application.open(address(*runs[:2]), ANN)
    page.want(runs={"experiment": searched.id})
    assert (page.field("Margin"), len(lines(page))) == (5.0, 5)
    assert "On 112 prompts." in page.text
    page.type("Margin", 7.0)
    page.want(runs={"experiment": runs[0].experiment_id})
    assert page.field("Margin") == 7.0
    opened = application.open(f"compare?experiment={searched.id}", ANN)
    assert opened.field("Margin") == 5.0
    again = application.open(f"compare?{opened.field('Link to this comparison').removeprefix('?')}", ANN)
    assert (again.field("Margin"), lines(again)) == (5.0, lines(opened))
    chosen = SettingConfig(pair="bundled", decoding=searched.config.target).id
    assert application.open(f"review?propose={chosen}&calibration={searched.id}", ANN).field("Accuracy") == "5"
