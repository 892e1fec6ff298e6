"""Answers in which nothing could be read are a figure, and verdicts of a benchmark's published filter are stored."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from sqlalchemy import update

from dashboard.compare.compared_runs import compare
from dashboard.compare.export import csv_text
from dashboard.runs.opened_run import tiles_html
from fsd_core.actions.answers import run_record
from fsd_core.evaluation.aggregate import published_figures, refreshed
from fsd_core.evaluation.runner import rescore
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import GenerationRow
from fsd_core.tasks import Example, get_task
from fsd_core.tasks.custom.scorers import SCORERS
from tests.tools.copies import copy_of
from tests.unit.test_components import Reader

STRICT = get_task("gsm8k").published_filter


@pytest.fixture
def repository(measured: Path, database_url: str) -> Iterator[Repository]:
    with copy_of(measured, database_url) as repository:
        yield repository


@pytest.fixture
def runs(repository: Repository) -> list[RunView]:
    return list(repository.experiment(repository.experiments()[0].id).runs)


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
    assert "1 truncated; 2 unread" in Reader(tiles_html(found)).text
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
