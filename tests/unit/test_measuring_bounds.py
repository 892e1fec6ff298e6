"""Bounds of runs on the theory page: what a click begins, and what the page shows of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import gradio as gr
import pytest
from starlette.requests import Request

from dashboard.ui.components import notice
from fsd_core.accounts import KEY as PERSON
from fsd_core.roles import LOCAL
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_plugins.theory.page import CHOOSE, NONE, PLOTS, TheoryPage
from tests.tools.asking import asked
from tests.tools.built import built
from tests.tools.plausible import add_finished
from tests.unit.test_speedup import BOUNDS

ACT = "0123456789abcdef" * 2


@pytest.fixture(scope="module")
def built_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TheoryPage]:
    url = f"sqlite:///{tmp_path_factory.mktemp('home')}/fsd.db"
    upgrade(url)
    database = open_database(url)

    def build() -> TheoryPage:
        with gr.Blocks(analytics_enabled=False):
            return TheoryPage(Repository(database), "worker")

    yield built(build)
    database.close()


@pytest.fixture
def page(built_page: TheoryPage, repository: Repository) -> TheoryPage:
    """The page over an empty database."""
    built_page.runs.repository = repository
    return built_page


@pytest.fixture
def runs(repository: Repository) -> list[RunView]:
    return list(repository.experiment(add_finished(repository, "Bounds")).runs)


def values(page: TheoryPage, runs: list[str], temperature: str = "1") -> dict[Any, Any]:
    typed = page.typed
    texts = {typed.target: "1, 1", typed.draft: "1, 2", typed.drafts: "2", typed.sampling: "with_replacement"}
    return texts | {page.runs.runs: runs, page.runs.temperature: temperature}


def look(page: TheoryPage, runs: list[str], shown: dict[str, str] | None = None) -> dict[Any, Any]:
    """What is drawn in all answers of one event."""
    shown, drawn, question = {} if shown is None else shown, {}, None
    while question is None or question.postponed:
        question = asked(values(page, runs), shown=dict(shown))
        drawn |= page.redraw(question)
        shown.update(question.shown)
    return drawn


def click(page: TheoryPage, runs: list[Any], temperature: str = "1", key: str = ACT) -> dict[Any, Any]:
    """What the page answers to its button."""
    view = page.view
    question = {"number": 1, "acts": [{"key": key, "name": "measure bounds", "data": [runs, temperature]}]}
    given = values(page, []) | {view._answer: json.dumps(question)}
    return view.answer(lambda asked: {}, given, gr.Request(Request({"type": "http", "state": {}, PERSON: LOCAL})))


@pytest.mark.wide
def test_a_click_begins_one_job_for_each_run_however_often_it_is_sent(
    page: TheoryPage, repository: Repository, runs: list[RunView]
) -> None:
    ids = [run.id for run in runs[:2]]
    for _ in range(2):
        assert click(page, [*ids, ids[0]], "0.5")[page.runs.answer] == ""
    jobs = repository.latest_jobs("bounds")
    assert sorted(job.payload["run_id"] for job in jobs) == sorted(ids)
    assert {job.payload["temperature"] for job in jobs} == {0.5}
    assert all(re.fullmatch("[0-9a-f]{32}", job.id) for job in jobs)
    for _ in jobs:
        claimed = repository.claim(("bounds",), 60)
        assert claimed is not None
        repository.finish_job(claimed.id, str(claimed.claim_token), "finished")
    click(page, ids, "0.5")  # its answer was lost, and it is sent once more
    assert len(repository.latest_jobs("bounds")) == 2
    click(page, ids, "0.5", "f" * 32)
    assert len(repository.latest_jobs("bounds")) == 4


def test_what_is_being_measured_is_not_begun_again(
    page: TheoryPage, repository: Repository, runs: list[RunView]
) -> None:
    click(page, [runs[0].id], "1")
    click(page, [runs[0].id, runs[1].id], "1", "e" * 32)
    click(page, [runs[0].id], "2", "f" * 32)  # at another temperature
    click(page, [runs[0].id], "1", "d" * 32)
    found = sorted((job.payload["run_id"], job.payload["temperature"]) for job in repository.latest_jobs("bounds"))
    assert found == sorted([(runs[0].id, 1.0), (runs[1].id, 1.0), (runs[0].id, 2.0)])


@pytest.mark.parametrize(
    ("chosen", "temperature", "said"),
    [
        ([], "1", CHOOSE),
        (None, "1", CHOOSE),
        ({"a": 1}, "1", CHOOSE),
        (["nothing"], "1", "nothing"),
        (["known"], "0", "expected more than 0"),
        (["known"], "-1.5", "The temperature is -1.5"),
        (["known"], "nan", "expected more than 0"),
        (["known"], "warm", "expected a number, or nothing"),
    ],
)
def test_what_cannot_be_measured_is_a_sentence(
    page: TheoryPage, repository: Repository, runs: list[RunView], chosen: Any, temperature: str, said: str
) -> None:
    chosen = [runs[0].id] if chosen == ["known"] else chosen
    assert said in click(page, chosen, temperature)[page.runs.answer]
    assert repository.latest_jobs("bounds") == []


def test_no_more_runs_are_asked_than_the_page_has_plots(
    page: TheoryPage, repository: Repository, runs: list[RunView]
) -> None:
    click(page, [run.id for run in runs])
    assert len(runs) > len(repository.latest_jobs("bounds")) == PLOTS


def test_a_page_without_runs_says_so(page: TheoryPage) -> None:
    assert look(page, [])[page.runs.message] == notice(NONE)


def test_the_clock_runs_while_a_job_is_under_way(page: TheoryPage, repository: Repository, runs: list[RunView]) -> None:
    run, shown = runs[0], dict[str, str]()
    drawn = look(page, [run.id], shown)
    assert (drawn[page.runs.clock].active, drawn[page.runs.measure].interactive) == (False, True)
    assert look(page, [run.id], shown) == {}
    click(page, [run.id])
    drawn = look(page, [run.id], shown)
    assert (drawn[page.runs.clock].active, drawn[page.runs.measure].interactive) == (True, False)
    assert "The worker is not running" in drawn[page.runs.progress]
    repository.report_worker(1, "host", "cpu", "idle")
    assert "Measuring, 1 of 1 to do." in look(page, [run.id], shown)[page.runs.progress]
    assert look(page, [run.id], shown) == {}
    job = repository.claim(("bounds",), 60)
    assert job is not None
    repository.set_scores(run.id, {}, (run.metrics or {}) | {"bounds": [BOUNDS]})
    repository.finish_job(job.id, str(job.claim_token), "finished")
    drawn = look(page, [run.id], shown)
    assert (drawn[page.runs.clock].active, drawn[page.runs.measure].interactive) == (False, True)
    assert drawn[page.runs.progress] == drawn[page.runs.message] == ""
    assert [drawn[plot].visible for plot in page.runs.plots] == [True, False, False, False]
    assert look(page, [run.id], shown) == {}


def test_an_unknown_run_is_an_error_in_place_of_the_bounds(page: TheoryPage, runs: list[RunView]) -> None:
    question = {"number": 1, "shown": {"offered": "1"}}
    view = page.view
    updates = view.answer(page.redraw, values(page, ["gone"]) | {view._answer: json.dumps(question)}, gr.Request())
    assert "gone" in updates[page.runs.message]
    assert [updates[plot].visible for plot in (*page.runs.plots, page.runs.speedup)] == [False] * (PLOTS + 1)
    assert updates[page.typed.rates].visible  # what was typed is answered
