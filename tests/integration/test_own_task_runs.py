"""Runs on tasks of one's own: the version that was asked for, conversations, fidelity, and the library's way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import fsd_core
from fsd_core.config import Autoregressive, DecodingConfig, FuzzyReducible, RunConfig, SettingConfig, Speculative
from fsd_core.errors import Cancelled, OutOfRange, UnfitTask, UnknownName
from fsd_core.evaluation import bounds
from fsd_core.evaluation.runner import RunObserver, execute_runs, rescore
from fsd_core.models.loading import LoadedPair
from fsd_core.models.prompt import encode_prompt
from fsd_core.settings import Settings
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from fsd_core.tasks.custom.custom_task import CustomTask, keep
from fsd_core.tasks.custom.reading import check
from fsd_core.testing import SAMPLED_FSD

TEMPLATE = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}"
GREEDY = DecodingConfig(max_new_tokens=8)


def task_of(*rows: object, scorer: str = "none", name: str = "mine") -> CustomTask:
    checked = check("".join(json.dumps(row) + "\n" for row in rows).encode(), scorer)
    assert not checked.problems
    return CustomTask.of(name, checked)


def new_run(repository: Repository, task: str, limit: int, decoding: DecodingConfig = GREEDY) -> str:
    return repository.create_run(RunConfig(setting=SettingConfig(decoding=decoding), task=task, limit=limit))


def asked(repository: Repository, run: str) -> list[str]:
    return [generation.prompt for generation in repository.generations(run)]


def test_a_run_keeps_to_its_version_whatever_is_added_meanwhile(repository: Repository, pair: LoadedPair) -> None:
    first = keep(repository, task_of({"prompt": "one 1"}, {"prompt": "two 2"}), "Ann").full_name
    run, done = new_run(repository, first, 2), []

    def stop(view: object) -> None:
        done.append(view)
        if len(done) == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        execute_runs(repository, [run], lambda *_: pair, RunObserver(stop))
    assert asked(repository, run) == ["one 1"]
    second = keep(repository, task_of({"prompt": "three 3"}, {"prompt": "four 4"}, {"prompt": "five"}), "Ann").full_name
    repository.reopen_runs([run], enqueue=False)
    other = new_run(repository, "mine", 3)  # as of a program that names no version
    execute_runs(repository, [run, other], lambda *_: pair)
    assert asked(repository, run) == ["one 1", "two 2"]
    assert asked(repository, other) == ["three 3", "four 4", "five"]
    assert repository.run(run).task == first != second
    assert rescore(repository, run) == 0  # its prompts are still those of its version
    assert {view.id for view in repository.runs(task="mine")} == {run, other}
    assert [view.id for view in repository.runs(task=first)] == [run]


def test_without_a_scorer_fidelity_to_the_target_is_measured_and_accuracy_is_not(
    repository: Repository, pair: LoadedPair
) -> None:
    rows = [{"prompt": f"prompt {i}", "reference": "x"} for i in range(4)]
    task = keep(repository, task_of(*rows), "Ann").full_name
    rules = Autoregressive(), Speculative(), FuzzyReducible(threshold=0.6)
    runs = [new_run(repository, task, 4, DecodingConfig(acceptance=rule, max_new_tokens=8)) for rule in rules]
    execute_runs(repository, runs, lambda *_: pair)
    exact, lossy = ((repository.run(run).metrics or {}) for run in runs[1:])
    assert (exact["same_text"], exact["accuracy"], exact["excess_nll"]) == (1.0, None, pytest.approx(0, abs=1e-6))
    assert lossy["same_text"] < 1
    assert lossy["accuracy"] is None
    assert {(g.outcome, g.reference) for g in repository.generations(runs[1])} == {("unscored", None)}


@pytest.mark.wide
def test_the_pair_is_given_the_conversation_itself(repository: Repository, pair: LoadedPair) -> None:
    turns = [("system", "be brief"), ("user", "a"), ("assistant", "b"), ("user", "c")]
    rows = {"messages": [{"role": role, "content": content} for role, content in turns]}
    task = keep(repository, task_of(rows, {"prompt": "c"}), "Ann")
    run = new_run(repository, task.full_name, 2, SAMPLED_FSD)
    execute_runs(repository, [run], lambda *_: pair)
    first, second = repository.generations(run)
    assert (first.outcome, second.outcome) == ("failed", "unscored")
    assert first.error == (
        "The model has no chat template, so it cannot be given a conversation of 4 messages: choose a pair that has "
        "one, or write the task with prompts."
    )
    assert first.prompt == "System: be brief\n\nUser: a\n\nAssistant: b\n\nUser: c"

    pair.tokenizer.chat_template = TEMPLATE
    try:
        whole = "".join(f"{role} {content} " for role, content in turns)
        ids = encode_prompt(pair.tokenizer, turns)
        assert ids == pair.tokenizer(whole, add_special_tokens=False)["input_ids"]
        run = new_run(repository, task.full_name, 2, SAMPLED_FSD)  # the first one was asked without a template
        seen = []
        spied = replace(pair, tokenizer=pair.tokenizer)
        original = type(spied.target).forward

        def forward(self: object, tokens: object, *rest: object, **more: object) -> object:
            seen.append(tokens[0].tolist())
            return original(self, tokens, *rest, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(spied.target), "forward", forward)
            execute_runs(repository, [run], lambda *_: spied)
            written = [g.outcome for g in repository.generations(run)]
            assert written == ["unscored", "unscored"]
            assert any(tokens[: len(ids)] == ids for tokens in seen)
            seen.clear()
            bounds.measure(repository, run, spied, positions=40)  # asks both models about the same texts again
            assert any(tokens[: len(ids)] == ids for tokens in seen)
    finally:
        pair.tokenizer.chat_template = None


@pytest.mark.wide
def test_the_library_measures_a_file_and_keeps_it_where_the_runs_are(tmp_path: Path) -> None:
    file = tmp_path / "Two Sums.jsonl"
    question = "Question: Eva has {} apples. Eva eats 2. How many are left?\nAnswer:"
    rows = [{"prompt": question.format(n), "reference": n - 2} for n in (3, 5)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = fsd_core.load_task(file, scorer="number")
    measured = fsd_core.compare([{"max_new_tokens": 96}], task, limit=2)
    assert {run.task for run in measured.runs} == {task.name}
    assert measured.runs[0].metrics is not None
    assert measured.runs[0].metrics["accuracy"] is not None

    home = tmp_path / "home"
    with pytest.raises(OutOfRange, match="a limit"):
        fsd_core.compare([{}], task, limit=3, home=home)
    fsd_core.sweep(task, limit=1, threshold=[0.3], baselines=False, max_new_tokens=8, home=home)
    again = fsd_core.compare([{"max_new_tokens": 8}], "two-sums", limit=1, home=home)
    assert [run.task for run in again.runs] == [task.name]
    repository = Repository(open_database(Settings(home=home).resolved_database_url))
    assert [view.full_name for view in repository.task_versions()] == [task.name]
    assert repository.task_content(*task.name.split("@")) == task.content
    repository._database.close()
    with pytest.raises(UnknownName, match="two-sums"):
        fsd_core.compare([{}], "two-sums", limit=1)
    file.write_text('{"prompt": 3}')
    with pytest.raises(UnfitTask, match="1 problem"):
        fsd_core.load_task(file)
