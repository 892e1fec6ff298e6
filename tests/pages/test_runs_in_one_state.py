"""The page of runs shows one state: what was asked for last, of what is stored now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr
import pytest

from fsd_core import plugins
from fsd_core.config import RunConfig, SettingConfig
from fsd_core.errors import UnknownName
from fsd_core.evaluation.rescoring import rescore
from fsd_core.roles import LOCAL, Person
from fsd_core.storage.records import Edit
from fsd_core.storage.repository import Repository
from fsd_core.tasks import TASKS
from fsd_core.worker import run_actions
from tests.tools.plausible import add_finished, finish, sweep
from tests.tools.shown_page import Application, ShownPage
from tests.tools.tracking_examples import generation
from tests.unit.test_rescoring import LETTER, measured

ANN, BOB = Person("Ann", "author"), Person("Bob", "author")


@pytest.fixture
def experiment(repository: Repository) -> str:
    """The id of the finished experiment of seven runs."""
    return repository.experiments()[0].id


@pytest.fixture
def under_way(repository: Repository) -> str:
    """The id of a run without prompts so far."""
    return repository.create_run(RunConfig(limit=3))


def failed(repository: Repository) -> str:
    """The id of an experiment whose worker was lost."""
    experiment = repository.create_experiment(sweep("Failed", limit=3))
    job = repository.claim(("experiment",), 600)
    assert job is not None
    repository.finish_job(job.id, str(job.claim_token), "failed", "The worker was lost.")
    return experiment


def lines(page: ShownPage) -> list[str]:
    return page.rows("Runs")


def prompts(page: ShownPage) -> list[str]:
    return page.rows("Prompts")


def test_an_act_whose_answer_is_lost_archives_once(
    application: Application, repository: Repository, experiment: str
) -> None:
    page = application.open(f"runs?experiment={experiment}", ANN)
    page.click("Archive")
    page.again()
    assert [one.text for one in page.elements("button") if "rchive" in one.text] == ["Unarchive"]
    assert len(repository.changes(subject=experiment, limit=10)) == 1


def test_resuming_twice_does_not_cancel(application: Application, repository: Repository) -> None:
    experiment = failed(repository)
    page = application.open(f"runs?experiment={experiment}", ANN)
    page.click("Resume")
    page.again()
    assert "Cancel" in [one.text for one in page.elements("button")]
    resumed = repository.experiment(experiment)
    assert (resumed.status, resumed.cancel_requested) == ("queued", False)


def test_filters_all_count_and_the_address_follows_them(application: Application, repository: Repository) -> None:
    other = add_finished(repository, "Another one", limit=3)
    page = application.open("runs", ANN)
    assert len(lines(page)) == 14
    page.choose("Algorithm", "SD")
    assert len(lines(page)) == 2
    page.choose("Order", "Oldest first")
    page.type("Search", "Another")
    (line,) = lines(page)
    assert "SD" in line
    assert page.address == {"search": "Another", "algorithm": "speculative", "sort": "oldest"}
    again = application.open("runs?search=Another&algorithm=speculative&sort=oldest", ANN)
    assert lines(again) == [line]
    assert (again.field("Search"), again.field("Algorithm"), again.field("Order")) == (
        "Another", "speculative", "oldest"
    )  # fmt: skip
    page.choose("Algorithm", "All")
    assert len(lines(page)) == 7
    page.choose("Status", "Failed")
    assert lines(page) == []
    assert "No run matches" in page.text
    page.choose("Status", "All")
    page.choose("Order", "Newest first")
    page.type("Search", "")
    assert (page.address, len(lines(page))) == ({}, 14)
    assert repository.experiment(other).runs


def test_what_an_address_asks_for_and_is_not_offered_is_left_out(
    application: Application, repository: Repository
) -> None:
    page = application.open("runs?status=finished&sort=nonsense&task=%3Cb%3E&columns=x,y", ANN)
    assert len(lines(page)) == 7
    assert (page.field("Status"), page.field("Task"), page.field("Order")) == ("finished", "all", "newest")


def test_filters_offer_the_pairs_that_have_runs(application: Application, repository: Repository) -> None:
    elsewhere = repository.create_run(RunConfig(setting=SettingConfig(pair="path:elsewhere"), limit=3))
    repository.cancel_run(elsewhere)
    page = application.open("runs?pair=qwen2.5-7b", ANN)
    assert (lines(page), page.field("Pair")) == ([], "qwen2.5-7b")
    page.choose("Pair", "path:elsewhere")
    (line,) = lines(page)
    assert "path:elsewhere" in line
    assert page.offers("Pair") == ["All", "Bundled arithmetic pair", "path:elsewhere"]


def test_a_heading_sorts_and_the_field_and_the_address_say_so(application: Application, repository: Repository) -> None:
    add_finished(repository, "Before it", limit=3)
    page = application.open("runs", ANN)
    page.do("sort", {"id": "experiment"})
    assert "Before it" in lines(page)[0]
    assert (page.field("Order"), page.address) == ("experiment", {"sort": "experiment"})
    page.do("sort", {"id": "magic"})
    assert "Runs cannot be sorted like that" in page.text
    assert "Before it" in lines(page)[0]


def test_many_runs_come_in_pages_and_another_list_begins_at_its_first(
    application: Application, repository: Repository
) -> None:
    repository.create_experiment(sweep("Series", limit=1, seeds=tuple(range(7))), enqueue=False)
    page = application.open("runs", ANN)
    assert (len(lines(page)), page.can_press("Previous"), page.can_press("Next")) == (50, False, True)
    assert "1 to 50 of 56 runs" in page.text
    first = lines(page)[0]
    page.press("Next")
    assert (len(lines(page)), page.can_press("Previous"), page.can_press("Next")) == (6, True, False)
    assert first not in lines(page)
    page.choose("Order", "Oldest first")
    assert "1 to 50 of 56 runs" in page.text


def test_a_look_at_a_run_keeps_its_filters_and_the_first_prompt_does_too(
    application: Application, repository: Repository, under_way: str
) -> None:
    page = application.open(f"runs?run={under_way}", ANN)
    assert "It is waiting for the worker." in page.text
    page.choose("Outcome", "Failed")
    page.type("Search", "nothing has this")
    repository.record_generation(under_way, generation(0))
    assert page.look()
    assert "Prompt 1" in page.part("prompt")
    assert (page.field("Outcome"), page.field("Search"), prompts(page)) == ("failed", "nothing has this", [])
    page.type("Search", "")
    page.choose("Outcome", "All")
    assert len(prompts(page)) == 1
    repository.record_generation(under_way, generation(1))
    page.look()
    assert len(prompts(page)) == 2
    assert page.look() == set()


def test_a_run_under_way_fills_up_by_itself(application: Application, repository: Repository) -> None:
    experiment = repository.create_experiment(sweep("Now", limit=4), enqueue=False)
    run = repository.experiment(experiment).runs[2]
    page = application.open(f"runs?run={run.id}", ANN)
    finish(repository, run)
    page.look()
    assert len(prompts(page)) == 4
    assert "finished" in page.text
    assert "waiting for the worker" not in page.text


def test_a_run_that_is_deleted_elsewhere_says_so(
    application: Application, repository: Repository, under_way: str
) -> None:
    page = application.open(f"runs?run={under_way}", ANN)
    assert page.elements("h1")
    run_actions.delete(repository, application.settings.home, "run", under_way, LOCAL)
    page.look()
    assert "local user deleted" in page.text
    assert "runs" in page.links()
    assert prompts(page) == []
    assert {type(part) for part in page.look()} == {gr.Timer}  # which stand still


def test_the_prompt_that_is_opened_last_is_shown(
    application: Application, repository: Repository, experiment: str
) -> None:
    run = repository.experiment(experiment).runs[2]
    page = application.open(f"runs?run={run.id}", ANN)
    assert "Prompt 1" in page.part("prompt")
    for position in (1, 2):
        page.want(prompt=position)
    assert "Prompt 3" in page.part("prompt")
    assert "Prompt 1" not in page.part("prompt")
    pressed = [one for one in page.elements("button") if one.attributes.get("aria-pressed") == "true"]
    assert [one.attributes["data-prompt"] for one in pressed] == ["2"]


@pytest.mark.parametrize("wanted", ["x", [1], -1, 10**9, 10**30, {"a": 1}])
def test_a_prompt_that_is_not_there_leaves_the_page_as_it_is(
    application: Application, repository: Repository, experiment: str, wanted: Any
) -> None:
    page = application.open(f"runs?run={repository.experiment(experiment).runs[2].id}", ANN)
    before = page.part("prompt")
    page.want(prompt=wanted)
    assert page.part("prompt") == before


def test_what_a_browser_says_that_it_shows_is_not_trusted(
    application: Application, repository: Repository, experiment: str
) -> None:
    page = application.open(f"runs?run={repository.experiment(experiment).runs[2].id}", ANN)
    for shown in ("x", "9" * 30, "-1", ""):
        page._shown["first prompt"] = shown
        page.look()
        assert page.part("prompt")


def test_the_worst_prompts_come_first_where_the_address_asks_for_them(
    application: Application, repository: Repository, experiment: str
) -> None:
    run = repository.experiment(experiment).runs[2]
    worst = repository.generations(run.id, worst_first=True, limit=1)[0].position
    assert worst > 0
    page = application.open(f"runs?run={run.id}&prompts=worst", ANN)
    assert prompts(page)[0].split()[0] == str(worst + 1)
    assert f"Prompt {worst + 1}" in page.part("prompt")
    page.choose("Order", "As in the task")
    assert prompts(page)[0].split()[0] == "1"


def test_what_is_typed_after_a_click_stays(application: Application, repository: Repository, experiment: str) -> None:
    page = application.open(f"runs?experiment={experiment}", ANN)
    page.type("Note", "First, and then second")
    page.press("Save", Note="First")
    assert "Saved." in page.text
    assert (page.part("experiment-said"), page.field("Note")) == ("First", "First, and then second")
    page.press("Save")
    assert page.part("experiment-said") == "First, and then second"
    assert repository.experiment(experiment).note == "First, and then second"


def test_a_name_that_was_saved_stays_at_the_next_look(
    application: Application, repository: Repository, experiment: str
) -> None:
    page = application.open(f"runs?experiment={experiment}", ANN)
    page.type("Name", "New name")
    page.press("Save", lost=True)
    assert len(repository.changes(subject=experiment, limit=10)) == 1
    page.look()
    assert "New name" in page.elements("h1")[0].text


def test_a_note_that_somebody_overtook_is_refused_and_stays_in_its_field(
    application: Application, repository: Repository, experiment: str
) -> None:
    page = application.open(f"runs?experiment={experiment}", ANN)
    page.type("Note", "Ann's")
    repository.annotate("experiment", experiment, Edit(note="Bob's"), BOB)
    page.press("Save")
    assert "What you typed is still in the fields." in page.text
    assert (page.field("Note"), page.part("experiment-said")) == ("Ann's", "Bob's")
    assert repository.experiment(experiment).note == "Bob's"
    page.press("Save")
    assert repository.experiment(experiment).note == "Ann's"


def test_a_run_that_failed_is_resumed_and_deleted(application: Application, repository: Repository) -> None:
    run = repository.create_run(RunConfig(limit=3))
    repository.record_generation(run, generation(0))
    repository.fail_run(run, "The worker was lost.")
    page = application.open(f"runs?run={run}", LOCAL)
    assert "The worker was lost." in page.text
    page.click("Resume")
    assert "queued" in page.text
    assert "Delete" not in [one.text for one in page.elements("button")]
    job = repository.claim(("run",), 600)
    assert job is not None
    repository.finish_job(run, str(job.claim_token), "failed", "The worker was lost again.")
    page.look()
    (delete,) = (one for one in page.elements("button") if one.text == "Delete")
    assert "with 1 prompt and their traces, here and in MLflow?" in str(delete.attributes["data-question"])
    page.click("Delete")
    assert "with 1 prompt" in page.text
    assert (prompts(page), repository.count_runs(id_prefix=run)) == ([], 0)
    page.again()
    assert "local user deleted" in page.text


def test_the_end_of_the_page_leads_admins_to_the_files_of_features(
    application: Application, repository: Repository
) -> None:
    file = "export/workspace.zip"
    assert file in application.open("runs", Person("Cat", "admin")).links()
    page = application.open("runs", ANN)
    assert lines(page)
    assert file not in page.links()


@pytest.fixture
def no_features(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No feature is in use, and the tasks are those of the core."""
    monkeypatch.setenv("FSD_PLUGINS", "none")
    monkeypatch.delattr(TASKS, "_things", raising=False)
    plugins.plugins.cache_clear()
    yield
    plugins.plugins.cache_clear()


@pytest.mark.parametrize("task", ["humaneval", "livecodebench-v5-v6:2024-10-01.."])
@pytest.mark.usefixtures("no_features")
def test_a_run_of_a_feature_s_task_opens_without_it(
    application: Application, repository: Repository, task: str
) -> None:
    assert "gsm8k" in TASKS
    assert task not in TASKS
    run, other = (repository.create_run(RunConfig(task=task, limit=3, seed=seed)) for seed in (0, 1))
    for each in (run, other):
        finish(repository, repository.run(each))
    page = application.open(f"runs?run={run}", ANN)
    assert task in page.text
    assert len(prompts(page)) == 3
    assert "On 3 prompts." in application.open(f"compare?runs={run},{other}", ANN).text
    with pytest.raises(UnknownName, match=f"There is no task '{task}': expected one of arithmetic"):
        rescore(repository, run)


def test_answers_that_could_not_be_read_are_a_figure_a_list_and_a_form(
    application: Application, empty: Repository
) -> None:
    run = empty.experiment(measured(empty, 2)).runs[0]
    assert "2 unread" not in application.open("runs", ANN).text
    assert "25 % 3 unread" in " ".join(application.open("runs", ANN).rows("Runs"))
    page = application.open(f"runs?run={run.id}", ANN)
    assert "In 3 of 4 answers nothing could be read, so they count as wrong. Show them" in page.text
    assert f"runs?run={run.id}&outcome=unread" in page.links()
    page = application.open(f"runs?run={run.id}&outcome=unread", ANN)
    assert page.field("Outcome") == "unread"
    assert len(page.rows("Prompts of the run")) == 3
    page.type("Regular expression for the answer", LETTER)
    page.press("Try it")
    tried = page.part("unread-answer")
    assert "It reads 2 of 3 answers; right: 1." in tried
    assert "Read: D. Expected: E. wrong" in tried
    assert empty.run(run.id).task == run.task
    page.press("Score again with it", lost=True)
    assert "Scored again, 1 of 4 answers left unread: 2 runs of letters@" in page.part("unread-answer")
    assert "In 1 of 4 answers nothing could be read" in page.text
    assert page.field("Regular expression for the answer") == ""
    page.press("Try it")
    assert "The regular expression '' matches even an empty text" in page.text


def test_a_task_of_the_program_offers_no_expression(application: Application, empty: Repository) -> None:
    run = empty.experiment(add_finished(empty, limit=2)).runs[0]
    unread = {one.id: ("wrong", None) for one in empty.generations(run.id)}
    empty.set_scores(run.id, unread, {**(run.metrics or {}), "unread": 2})
    page = application.open(f"runs?run={run.id}", ANN)
    with pytest.raises(AssertionError, match="0 fields"):
        page.field("Regular expression for the answer")
