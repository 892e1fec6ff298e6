"""Runs know how their answers were scored, and those in which nothing could be read are a figure."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import update

from dashboard.compare.compare_page import compare_runs
from dashboard.compare.compared_runs import compare
from dashboard.compare.export import csv_text, latex, markdown
from dashboard.review.opened_proposal import proposal_html
from dashboard.review.review_page import use_html
from dashboard.runs.opened_run import notes_html, provenance_html, tiles_html
from dashboard.server.api import api_routes
from dashboard.settings import measurements, runs_html
from fsd_core.actions.action import Ask
from fsd_core.actions.answers import run_record
from fsd_core.actions.reviews import review_answer
from fsd_core.analysis.comparability import read_differently
from fsd_core.cli import output
from fsd_core.cli.commands import app
from fsd_core.evaluation.aggregate import published_figures, refreshed
from fsd_core.evaluation.rescoring import rescore
from fsd_core.review.approvals import approval_of, check_setting
from fsd_core.review.evidence import _pool
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.settings import Settings
from fsd_core.storage.records import READING_VERSIONS, PromptCounts, RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.tables import GenerationRow, RunRow
from fsd_core.tasks import Example, Score, get_task
from fsd_core.tasks.custom.scorers import SCORERS
from fsd_core.tasks.readings import READING_VERSION
from fsd_core.worker import run_actions
from fsd_plugins.reports.section import frozen_comparison
from tests.tools.copies import copy_of
from tests.unit.test_components import Reader

ANN, BOB = Person("Ann", "author"), Person("Bob", "reviewer")
NOW = f"version {READING_VERSION} of the reading"
TOLD = f"Answers were scored by versions 1 and {READING_VERSION} of the reading: not one accuracy. Without generating, "
USE = "chat"


@pytest.fixture
def repository(measured: Path, database_url: str) -> Iterator[Repository]:
    with copy_of(measured, database_url) as repository:
        yield repository


@pytest.fixture
def runs(repository: Repository) -> list[RunView]:
    return list(repository.experiment(repository.experiments()[0].id).runs)


@pytest.fixture
def prompts(repository: Repository, runs: list[RunView], monkeypatch: pytest.MonkeyPatch) -> None:
    """The task has the prompts that the runs were asked."""
    asked = tuple(Example(g.example_id, g.prompt, g.reference) for g in repository.generations(runs[0].id))
    monkeypatch.setattr(type(get_task("arithmetic")), "all_examples", lambda self: asked)


def read_by(repository: Repository, run: RunView, versions: str | None) -> RunView:
    """The run as if these versions had scored it; ``None``: as before they were recorded."""
    about = {key: value for key, value in (run.provenance or {}).items() if key != READING_VERSIONS}
    with repository._database.session() as session:
        session.get_one(RunRow, run.id).provenance = about | ({READING_VERSIONS: versions} if versions else {})
    return repository.run(run.id)


def test_a_run_without_a_version_was_read_by_the_first(repository: Repository, runs: list[RunView]) -> None:
    assert runs[0].reading_versions == (READING_VERSION,)
    assert read_by(repository, runs[0], None).reading_versions == (1,)
    assert read_by(repository, runs[0], "1, 2").reading_versions == (1, 2)
    assert replace(runs[0], prompts_done=0).reading_versions == ()


def test_runs_of_two_versions_are_named_with_what_reads_them_again(repository: Repository, runs: list[RunView]) -> None:
    assert read_differently(runs) == ""
    old = [read_by(repository, run, None) for run in runs[:2]]
    assert read_differently(old) == ""  # one version, if an early one
    again = f"`rescore {(runs[0].experiment_id or '')[:8]}` scores them again."
    assert read_differently([*old, runs[2]]) == TOLD + again


def test_rounds_of_a_calibration_are_one_measurement_by_all_their_versions(runs: list[RunView]) -> None:
    config = runs[2].config.model_copy(update={"shuffled": True})
    rounds = [
        replace(runs[2], id=versions, config=config, provenance={READING_VERSIONS: versions}) for versions in ("1", "2")
    ]
    pool = _pool(tuple(rounds), {"1": {0: _counts()}, "2": {1: _counts()}})
    assert pool.run.reading_versions == (1, 2)


def _counts() -> PromptCounts:
    return PromptCounts("correct", "eos", 10, 5, 10, 5, 0, 1.0, 1.0, 0.1)


def test_compare_its_files_and_its_call_say_so(repository: Repository, runs: list[RunView]) -> None:
    read_by(repository, runs[2], None)
    ids = [run.id for run in runs]
    found = compare(repository, ids, None)
    (warning,) = found.warnings
    assert warning.startswith(TOLD)
    table = pd.read_csv(io.StringIO(csv_text(found)), dtype=str)
    assert table["reading_versions"].tolist() == ["1" if at == 2 else str(READING_VERSION) for at in range(len(runs))]
    assert TOLD in table["warnings"][0]
    assert TOLD in markdown(found, "Two readings")
    assert f"versions 1 and {READING_VERSION} of the reading" in latex(found)
    (metrics,) = frozen_comparison(found, "Two readings", "", ["metrics"]).tables
    assert TOLD in metrics.note
    assert compare_runs(Ask(Settings(), repository=repository), ids)["warnings"] == [warning]
    assert compare(repository, ids[:2], None).warnings == []


def test_a_setting_a_run_and_the_command_line_say_so(
    repository: Repository, runs: list[RunView], capsys: pytest.CaptureFixture[str]
) -> None:
    run = read_by(repository, runs[3], "1, 2")
    page = Reader(notes_html(run)).text
    assert TOLD in page
    assert "Reading versions1, 2" in Reader(provenance_html(run, {})).text
    assert notes_html(runs[2]) == ""
    assert (run_record(run)["reading_versions"], output.run_json(run)["reading_versions"]) == ([1, 2], [1, 2])
    output.print_runs([runs[0], run])
    assert TOLD in " ".join(capsys.readouterr().out.split())
    output.print_runs(runs[:2])
    assert "of the reading" not in capsys.readouterr().out
    # The setting's own run is of one version, its baseline of another.
    read_by(repository, runs[3], None)
    assert TOLD in Reader(runs_html(measurements(repository, [repository.run(runs[3].id)]), {})).text
    assert "of the reading" not in Reader(runs_html(measurements(repository, [runs[4]]), {})).text


def test_no_accuracy_is_promised_across_versions(repository: Repository, runs: list[RunView]) -> None:
    service = ReviewService(repository)
    service.describe(ANN, "Chat", requirements=Requirements(margin=20))
    proposal = service.propose(ANN, USE, [runs[3].id], [runs[0].id])
    assert service.review(proposal).open_requirements == ()
    read_by(repository, runs[0], None)
    review = service.review(proposal)
    assert review.open_requirements == ("margin",)
    (finding,) = review.evidence[0].findings
    assert (finding.outcome, TOLD in finding.text) == ("undecided", True)
    (check, _), *_ = check_setting(repository, service.use(USE), runs[3].setting_id).requirements
    assert TOLD in check.text


@pytest.mark.usefixtures("prompts")
def test_a_verdict_stays_as_it_was_with_a_note(
    repository: Repository, runs: list[RunView], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service = ReviewService(repository)
    service.describe(ANN, "Chat", requirements=Requirements(margin=20))
    for run in (runs[0], runs[3]):
        read_by(repository, run, None)
    proposal = service.propose(ANN, USE, [runs[3].id], [runs[0].id])
    review = service.review(proposal)
    assert review.note == ""  # nothing is approved yet
    service.submit_review(BOB, review, "approve", "", review.use.sequence)
    before = check_setting(repository, service.use(USE))
    assert before.passes
    assert before.approval is not None
    assert before.approval.note.startswith(f"Scored before {NOW}: the verdict stays. Without generating, ")

    monkeypatch.setattr(
        type(get_task("arithmetic")),
        "score_answer",
        lambda self, text, example, stop: Score("wrong" if example.id.endswith("3") else "correct", example.reference),
    )
    assert rescore(repository, runs[0].id) > 0
    assert rescore(repository, runs[3].id) > 0
    again, outcomes = repository.run(runs[3].id), ("correct", "wrong", "truncated", "failed")
    assert again.reading_versions == (READING_VERSION,)
    assert [(again.metrics or {})[name] for name in outcomes] == [21, 3, 0, 0]
    former, stored = again.as_read_before.metrics or {}, runs[3].metrics or {}
    assert [former[name] for name in outcomes] == [stored[name] for name in outcomes] != [21, 3, 0, 0]
    approval = approval_of(repository, service.use(USE))
    assert approval is not None
    note = f"Its answers were scored again since by {NOW}: the verdict stays."
    assert (approval.evidence, approval.doubts, approval.note) == ("intact", [], note)
    review = service.review(proposal)
    assert (review.status.approved_by, review.status.stale, review.note) == (("Bob",), (), note)
    assert note in Reader(proposal_html(review, "A setting")).text
    assert note in Reader(use_html(service.use(USE), {}, approval)).text
    assert review_answer(review, {}, "")["note"] == note
    web = FastAPI()
    web.include_router(api_routes(repository))
    assert TestClient(web).get(f"/api/v1/uses/{USE}/check").json()["approval"]["note"] == note
    monkeypatch.setattr(run_actions, "open_repository", lambda settings: repository)
    app(["review", "check", USE], standalone_mode=False)
    assert note in capsys.readouterr().err
    assert json.dumps(approval.as_json())

    # A scorer that was mended within a version is other evidence, as ever.
    monkeypatch.setattr(
        type(get_task("arithmetic")), "score_answer", lambda self, text, example, stop: Score("wrong", None)
    )
    assert rescore(repository, runs[3].id) > 0
    changed = approval_of(repository, service.use(USE))
    assert changed is not None
    assert (changed.evidence, changed.note) == ("changed", "")


@pytest.mark.usefixtures("prompts")
def test_a_run_that_reads_as_before_records_the_version_all_the_same(
    repository: Repository, runs: list[RunView]
) -> None:
    rescore(repository, runs[1].id)  # so that the second time nothing changes
    read_by(repository, runs[1], None)
    repository.mark_synced(repository.run(runs[1].id), "copy")
    assert rescore(repository, runs[1].id) == 0
    assert repository.run(runs[1].id).reading_versions == (READING_VERSION,)
    assert runs[1].id in [run.id for run in repository.unsynced_runs()]


STRICT = get_task("gsm8k").published_filter


def test_answers_that_say_nothing_are_counted_at_every_door(repository: Repository, runs: list[RunView]) -> None:
    run = runs[2]
    assert compare(repository, [runs[0].id, run.id], None).warnings == []
    unread = {"outcome": "wrong", "answer": None, "text": "I am not sure."}
    cut = {"outcome": "truncated", "answer": None}
    with repository._database.session() as session:
        for positions, values in (((3, 4), unread), ((5,), cut)):
            of = GenerationRow.run_id == run.id, GenerationRow.position.in_(positions)
            session.execute(update(GenerationRow).where(*of).values(values))
    found = refreshed(repository.run(run.id), repository.prompts([run.id])[run.id])
    assert found.metrics is not None
    assert (found.metrics["unread"], found.metrics["truncated"]) == (2, 1)
    assert re.search(r"2 unread.* 1 truncated", Reader(tiles_html(found)).text)
    assert run_record(found)["counts"]["unread"] == 2
    compared = compare(repository, [runs[0].id, run.id], None)
    (warning,) = compared.warnings
    assert (
        warning == f"No answer could be read in some texts, which count as wrong: 2 of 24 of {compared.rows[1].name}."
    )
    assert pd.read_csv(io.StringIO(csv_text(compared)))["unread"].tolist() == [0, 2]


@pytest.mark.parametrize("scorer", ["contains", "regex"])
def test_a_text_that_is_searched_in_vain_was_read(scorer: str) -> None:
    score = SCORERS[scorer].judge("Nothing of it", Example("a", "Which?", "x y"), "eos")
    assert (score.outcome, score.answer) == ("wrong", "")


@pytest.mark.parametrize(
    ("text", "outcome", "differs"),
    [
        ("3 + 4 = 7\n#### 7", "correct", None),
        ("So it is 7 apples.", "correct", "wrong"),  # without its mark
        ("#### $7", "correct", "wrong"),
        ("#### 1,007.", "wrong", None),
        ("#### 7\nWait, it is 8.", "wrong", "correct"),
        ("<think>#### 7</think>#### 8", "wrong", None),
    ],
)
def test_verdicts_of_a_published_filter_are_kept_where_they_differ(
    repository: Repository, runs: list[RunView], text: str, outcome: str, differs: str | None
) -> None:
    one = replace(repository.generations(runs[0].id, position=0)[0], text=text, outcome=outcome, reference="7")
    found = published_figures(get_task("gsm8k"), [one])
    assert found["published_differs"] == ({differs: [0]} if differs else {})
    assert found["published_correct"] == ((outcome == "correct") != bool(differs))
    assert published_figures(get_task("csqa"), [one]) == {}


def test_gpqa_has_the_filter_of_simple_evals(repository: Repository, runs: list[RunView]) -> None:
    one = repository.generations(runs[0].id, position=0)[0]
    told = [replace(one, position=at, text=text, outcome="correct", reference="C")
            for at, text in enumerate(("Answer: C", "answer: $C$", "**C**", "Therefore: C"))]  # fmt: skip
    assert published_figures(get_task("gpqa-diamond"), told) == {
        "published_correct": 2, "published_differs": {"wrong": [2, 3]},
    }  # fmt: skip


def test_a_run_and_its_rescoring_store_both_verdicts(
    repository: Repository, runs: list[RunView], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, run = type(get_task("arithmetic")), runs[0]
    asked = tuple(Example(g.example_id, g.prompt, g.reference) for g in repository.generations(run.id))
    monkeypatch.setattr(task, "all_examples", lambda self: asked)
    monkeypatch.setattr(task, "published_filter", STRICT)
    with repository._database.session() as session:  # lenient reading takes the last mark, the filter the first
        of = GenerationRow.run_id == run.id, GenerationRow.position == 1
        text = f"#### 0\nNo.\n#### {asked[1].reference}"
        session.execute(update(GenerationRow).where(*of).values(text=text, outcome="wrong", answer="0"))
    assert rescore(repository, run.id) > 0
    found = repository.run(run.id)
    assert found.metrics is not None
    assert found.metrics["published_differs"] == {"wrong": [1]}
    assert found.metrics["published_correct"] == found.metrics["correct"] - 1
    text = f"{found.metrics['published_correct']} correct by the benchmark's published filter"
    assert text in Reader(tiles_html(found)).text
    assert run_record(found)["counts"]["published_correct"] == found.metrics["published_correct"]
