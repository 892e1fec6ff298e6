"""The theory page: what it reads and draws, and the bounds of runs that it has measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import gradio as gr
import pytest
from starlette.requests import Request

from dashboard.tables.run_record import gaps_html, of_run, rates
from dashboard.ui.components import notice
from fsd_core.accounts import KEY as PERSON
from fsd_core.errors import InvalidSetting
from fsd_core.plots import acceptance
from fsd_core.roles import LOCAL
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.theory import optimal_acceptance
from fsd_plugins.theory import page as theory
from fsd_plugins.theory.page import (
    CHOOSE,
    NONE,
    PLOTS,
    TheoryPage,
    coupling,
    curves,
    read_pair,
    read_weights,
    token_names,
)
from tests.tools.asking import asked
from tests.tools.built import built
from tests.tools.plausible import add_finished
from tests.tools.run_views import decoding, metrics, run_view

P, Q = [0.45, 0.30, 0.15, 0.10], [0.20, 0.40, 0.10, 0.30]


def test_numbers_of_any_scale_are_read_as_shares() -> None:
    assert read_weights("1, 3", "p") == [0.25, 0.75]
    assert read_weights(" 2;2 \n 4 ", "p") == [0.25, 0.25, 0.5]


@pytest.mark.parametrize(
    ("target", "draft", "told"),
    [
        ("", "1", "There are 0 numbers in the target's distribution"),
        ("1, a, 2", "1", "“a” in the target's distribution is not a number"),
        ("1 -1", "1 1", "at least 0"),
        ("0 0", "1 1", "not all of them 0"),
        ("1 inf", "1 1", "expected finite numbers"),
        ("nan 1", "1 1", "are not a distribution"),
        ("1 1", "1 1 1", "has 2 tokens and the draft 3"),
        ("1 " * 201, "1", "expected 1 to 200"),
    ],
)
def test_what_cannot_be_read_is_told_in_a_sentence(target: str, draft: str, told: str) -> None:
    with pytest.raises(InvalidSetting, match=told):
        read_pair(target, draft)


def test_the_curves_are_those_of_the_theory() -> None:
    found = curves(P, Q)
    for sampling, optima in found.optima.items():
        assert optima == [optimal_acceptance(P, Q, n, sampling) for n in range(1, 9)]
    assert list(found.verifiers["spec-hub"][2]) == [2]
    assert found.verifiers["spec-hub"][2][2] == pytest.approx(found.optima["greedy"][1])
    figure = acceptance.draw_acceptance_by_drafts(found.optima, found.verifiers)
    assert {trace.name for trace in figure.data} >= {"Optimum, with replacement", "K-SEQ", "SpecHub (2 drafts)", "NSS"}
    first = figure.data[0]
    assert list(first.y) == pytest.approx([100 * rate for rate in found.optima["with_replacement"]])


@pytest.mark.parametrize("sampling", ["with_replacement", "without_replacement", "greedy"])
def test_the_picture_of_the_coupling_adds_up(sampling: str) -> None:
    pairs = coupling(P, Q, 2, sampling)
    assert pairs is not None
    figure = theory.draw_coupling(token_names(4), pairs)
    accepted, others = ([[cell or 0 for cell in row] for row in trace.z] for trace in figure.data)
    assert sum(map(sum, accepted)) == pytest.approx(optimal_acceptance(P, Q, 2, sampling))
    written = [sum(a) + sum(b) for a, b in zip(accepted, others, strict=True)]
    assert written == pytest.approx(P)
    assert len(set(figure.data[0].x)) == len(figure.data[0].x)


def test_a_picture_that_would_be_too_large_is_not_drawn() -> None:
    many = [1 / 30] * 30
    assert coupling(many, many, 2, "with_replacement") is None
    assert coupling(many, many, 8, "greedy") is not None
    assert token_names(30)[-1] == "30"


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


BOUNDS = {
    "temperature": 1.0,
    "positions": 48,
    "seed": 0,
    "optima": {
        sampling: [{"drafts": n, "rate": 0.5 + 0.05 * n, "low": 0.4, "high": 0.99} for n in range(1, 9)]
        for sampling in ("with_replacement", "without_replacement", "greedy")
    },
    "verifiers": {
        "rrs": [{"drafts": n, "rate": 0.5 + 0.04 * n, "low": 0.4, "high": 0.9} for n in range(1, 9)],
        "spec-hub": [{"drafts": 2, "rate": 0.6, "low": 0.5, "high": 0.7}],
    },
}


@pytest.mark.parametrize(
    ("acceptance", "length", "cost", "expected"),
    [(0.0, 5, 0.0, 1.0), (1.0, 5, 0.0, 6.0), (1.0, 4, 0.25, 2.5), (0.5, 1, 0.5, 1.0), (0.8, 2, 0.1, 2.44 / 1.2)],
)
def test_the_prediction_is_tokens_a_round_over_its_cost(acceptance, length, cost, expected):
    assert theory.predicted(acceptance, length, cost) == pytest.approx(expected)


def test_a_run_is_laid_over_the_curve_of_its_draft_length():
    """Speculative decoding at acceptance 0.8: 600 rounds of γ 5 that drafted 3,000 tokens in one second."""
    alone = run_view(decoding("autoregressive"), metrics(speed=100))
    fast = run_view(decoding("speculative"), metrics(speed=250, acceptance=0.8))
    (point,) = theory.measured_speedups([alone, fast])
    assert (point.length, point.speedup) == (5, 2.5)
    assert point.acceptance == pytest.approx(0.8)
    assert point.cost == pytest.approx(1.0 / 3000 * 100)
    drawn = theory.draw_speedup([point])
    curve, marks = drawn.data
    assert curve.y[48] == pytest.approx(theory.predicted(0.8, 5, point.cost))
    assert list(marks.y) == [2.5]
    assert "measured 2.50 ×" in marks.hovertext[0]


def test_without_the_target_alone_there_is_nothing_to_be_faster_than():
    fast = run_view(decoding("speculative"), metrics(speed=250, acceptance=0.8))
    other = run_view(decoding("autoregressive"), metrics(speed=100), task="gsm8k")
    assert theory.measured_speedups([other, fast]) == []
    assert "was measured beside the target alone" in theory.draw_speedup([]).layout.annotations[0].text


def test_gaps_stand_below_each_verifier():
    run = run_view(
        decoding("speculative"), metrics(acceptance=0.8) | {"bounds": [BOUNDS | {"temperature": 2.0}, BOUNDS]}
    )
    assert [found["temperature"] for found in of_run(run)] == [1.0, 2.0]
    optima, verifiers = rates(BOUNDS)
    assert optima["greedy"][7] == pytest.approx(0.9)
    assert verifiers["rrs"][1:] == ("with_replacement", {n: 0.5 + 0.04 * n for n in range(1, 9)})
    html = gaps_html(BOUNDS)
    assert "58.0<br><small>−2.0</small>" in html  # RRS with two drafts, where 60 % could be
    gone = BOUNDS | {"verifiers": BOUNDS["verifiers"] | {"of-a-package-that-is-gone": BOUNDS["verifiers"]["rrs"]}}
    assert gaps_html(gone) == html
    assert rates(gone) == (optima, verifiers)
    assert html.count("<td") == 5 * 9
