"""Answers that could not be read are read by a regular expression of the task, without generating anything again."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from fsd_core.config import Autoregressive, DecodingConfig, FuzzyReducible, SweepConfig
from fsd_core.errors import FsdError, NotApplicable, WrongState
from fsd_core.evaluation.aggregate import summarise
from fsd_core.evaluation.rescoring import read_with, rescore, rescore_with
from fsd_core.storage.repository import Repository
from fsd_core.tasks.base import Score
from fsd_core.tasks.custom.custom_task import CustomTask, find_task, keep
from fsd_core.tasks.custom.reading import check
from tests.tools.tracking_examples import generation

TEXTS = ("Some thought: ((E)) it is", "Some thought: ((D)) it is", "The answer is E.", "Well")
"""answers to four prompts, of which the scorer reads the third alone"""
LETTER = r"\(\(([A-E])\)\)"


@pytest.fixture
def experiment(repository: Repository) -> str:
    """Two runs on a task whose scorer looks for a letter, so that nothing is read of most texts."""
    return measured(repository, 2)


def measured(repository: Repository, finished: int) -> str:
    """An experiment of two runs, of which so many are finished."""
    lines = [json.dumps({"prompt": f"{i} of five?", "reference": "E"}) for i in range(len(TEXTS))]
    task = CustomTask.of("letters", check("\n".join(lines).encode(), "choice"))
    name = keep(repository, task, "Ann").full_name
    decodings = (DecodingConfig(acceptance=Autoregressive()), DecodingConfig(acceptance=FuzzyReducible(threshold=0.1)))
    id = repository.create_experiment(
        SweepConfig(name="mine", task=name, limit=len(TEXTS), decodings=decodings), enqueue=False
    )
    examples, stored = task.all_examples(), find_task(name, repository)
    for run in repository.experiment(id).runs[:finished]:
        repository.start_run(run.id, {})
        done = []
        for position, text in enumerate(TEXTS):
            score = stored.score(text, examples[position], "eos")
            about = {"example_id": examples[position].id, "prompt": examples[position].prompt, "reference": "E"}
            one = replace(generation(position, text), **about, outcome=score.outcome, answer=score.answer)
            repository.record_generation(run.id, one)
            done.append(one)
        repository.finish_run(run.id, summarise(done, None))
    return id


def test_what_an_expression_reads_is_shown_and_nothing_is_stored(repository: Repository, experiment: str) -> None:
    run = repository.experiment(experiment).runs[0]
    assert (run.metrics or {})["unread"] == 3
    read = read_with(repository, run.id, LETTER)
    assert [(one.generation.position, one.score) for one in read] == [
        (0, Score("correct", "E")), (1, Score("wrong", "D")), (3, Score("wrong", None)),
    ]  # fmt: skip
    assert repository.run(run.id) == run
    assert [view.name for view in repository.task_versions()] == ["letters"]


def test_all_runs_of_the_experiment_are_scored_by_another_version_of_the_task(
    repository: Repository, experiment: str
) -> None:
    before = repository.experiment(experiment)
    changed = rescore_with(repository, before.runs[0].id, LETTER, "Ann")
    assert changed == {run.id: 2 for run in before.runs}
    after = repository.experiment(experiment)
    latest, former = repository.task_versions("letters")
    assert former.full_name == before.runs[0].task
    assert {run.task for run in after.runs} | {run.config.task for run in after.runs} | {after.config.task} == {
        latest.full_name
    }
    assert '"answer_pattern": "' in repository.task_content("letters", latest.version).splitlines()[0]
    for run in after.runs:
        assert run.metrics is not None
        assert (run.metrics["correct"], run.metrics["unread"]) == (2, 1)
        assert [one.answer for one in repository.generations(run.id)] == ["E", "D", "E", None]
        assert [one.position for one in repository.generations(run.id, outcome="unread")] == [3]
        assert rescore(repository, run.id) == 0, "the task has it now"
    assert {run.id for run in repository.unsynced_runs()} == {run.id for run in after.runs}
    assert [run.setting_id for run in after.runs] == [run.setting_id for run in before.runs]


def test_a_new_run_of_the_task_reads_by_its_expression(repository: Repository, experiment: str) -> None:
    rescore_with(repository, repository.experiment(experiment).runs[0].id, LETTER, "Ann")
    task = find_task("letters", repository)
    example = task.all_examples()[0]
    assert task.score("One of ((A)) and ((E))", example, "eos") == Score("correct", "E"), "the last counts"
    assert task.score("The answer is D. ((E))", example, "eos") == Score("wrong", "D"), "what was read stays"
    assert task.score("One of ((", example, "length") == Score("truncated", None)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("(", "The regular expression '(' is no regular expression of RE2"),
        ("x*", "matches even an empty text"),
        (r"(a)\1", "is no regular expression of RE2"),
        ("", "matches even an empty text"),
    ],
)
def test_an_expression_that_cannot_be_used_is_refused(
    repository: Repository, experiment: str, pattern: str, told: str
) -> None:
    run = repository.experiment(experiment).runs[0]
    for deed in (lambda: read_with(repository, run.id, pattern), lambda: rescore_with(repository, run.id, pattern, "")):
        with pytest.raises(FsdError, match=re.escape(told)):
            deed()
    assert repository.experiment(experiment).runs[0] == run


def test_a_task_of_the_program_is_read_as_its_authors_do(repository: Repository) -> None:
    run = repository.create_run(SweepConfig(name="x", limit=2, decodings=(DecodingConfig(),)).runs()[0])
    repository.finish_run(run, {})
    with pytest.raises(NotApplicable, match="are read as its authors read them"):
        read_with(repository, run, LETTER)


def test_while_a_run_of_the_experiment_goes_on_nothing_is_scored(repository: Repository) -> None:
    first, second = repository.experiment(measured(repository, 1)).runs
    with pytest.raises(WrongState, match=f"The run {second.id} has not ended"):
        rescore_with(repository, first.id, LETTER, "Ann")
    assert repository.run(first.id) == first
    assert len(repository.task_versions()) == 1


def test_a_file_may_name_the_expression_in_its_first_line() -> None:
    line = json.dumps({"prompt": "Which?", "reference": "E"})
    checked = check(f'{{"scorer": "choice", "answer_pattern": "<(.)>"}}\n{line}'.encode())
    assert not checked.problems
    task = CustomTask.of("letters", checked)
    assert task.score("<E>, I say", task.all_examples()[0], "eos") == Score("correct", "E")
    assert CustomTask.of("letters", check(task.content.encode())).view.version == task.view.version
    wrong = check(f'{{"scorer": "choice", "answer_pattern": "("}}\n{line}'.encode())
    assert "The answer_pattern cannot be used" in wrong.problems[0].sentence
