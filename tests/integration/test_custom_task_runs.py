"""Runs on tasks of one's own, and on those whose turns are asked one after another."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import fsd_core
from dashboard.runs.opened_run import prompt_html, prompts_html
from dashboard.tables.prompt_pairs import pair_up, pairs_html
from dashboard.ui.templates import escape
from fsd_core.analysis.comparability import COSTS, comparable, measured_of, rendered_differently
from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    FuzzyReducible,
    RunConfig,
    SettingConfig,
    Speculative,
)
from fsd_core.errors import Cancelled, OutOfRange, UnfitTask, UnknownName
from fsd_core.evaluation import bounds
from fsd_core.evaluation.aggregate import summarise
from fsd_core.evaluation.rescoring import rescore
from fsd_core.evaluation.runner import RunObserver, execute_runs
from fsd_core.models.loading import LoadedPair, make_pair
from fsd_core.models.prompt import encode_prompt
from fsd_core.replays.recording import record
from fsd_core.settings import Settings
from fsd_core.statistics.tradeoff import Curves
from fsd_core.storage.opening import open_database
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.tasks import get_task
from fsd_core.tasks.custom.custom_task import CustomTask, keep
from fsd_core.tasks.custom.reading import check
from fsd_core.testing import SAMPLED_FSD, TOY, related, toy_model, toy_tokenizer
from tests.tools.sizes import some

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


TURN_TEMPLATE = (
    "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
QUESTIONS = [["One stone?", "And two?"], ["A bird", "A second bird", "Both"], ["Alone"]]
STRICT = DecodingConfig(acceptance=Speculative(), topology=ChainTopology(length=3), max_new_tokens=12)
PLAIN = DecodingConfig(acceptance=Autoregressive(), max_new_tokens=12)
FUZZY = DecodingConfig(acceptance=FuzzyReducible(threshold=0.6), topology=ChainTopology(length=3), max_new_tokens=12)
TASK = "mt-bench-turns"


@pytest.fixture
def questions(data_folder: Path, request: pytest.FixtureRequest) -> None:
    file = data_folder / "mtbench/mt_bench/question.jsonl"
    file.parent.mkdir(parents=True)
    asked = getattr(request, "param", QUESTIONS)
    rows = [{"question_id": 81 + i, "category": "a", "turns": turns} for i, turns in enumerate(asked)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def turn_pair() -> LoadedPair:
    tokenizer = toy_tokenizer()
    tokenizer.chat_template = TURN_TEMPLATE
    target = toy_model(len(tokenizer), 3, context=512)
    return make_pair(TOY, tokenizer, target, related(target, 0.3, 4))


def turn_new_run(repository: Repository, decoding: DecodingConfig = STRICT, limit: int = 6, **more: Any) -> str:
    setting = SettingConfig(pair="bundled", decoding=decoding)
    return repository.create_run(RunConfig(setting=setting, task=TASK, limit=limit, **more))


def run(repository: Repository, pair: LoadedPair, *run_ids: str, **more: Any) -> None:
    execute_runs(repository, run_ids, lambda *_: pair, **more)


def texts(repository: Repository, run_id: str) -> list[str]:
    return [g.text for g in repository.generations(run_id)]


def by_transformers(pair: LoadedPair, questions: Sequence[Sequence[str]]) -> list[str]:
    """Return the answers of whole conversations by apply_chat_template and generate, greedily."""
    tokenizer: Any = pair.tokenizer
    model: Any = pair.target.module
    answers: list[str] = []
    for turns in questions:
        messages: list[dict[str, str]] = []
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")
            output = model.generate(**prompt, max_new_tokens=12, do_sample=False)[0, prompt["input_ids"].shape[1] :]
            answers.append(tokenizer.decode(output, skip_special_tokens=True))
            messages.append({"role": "assistant", "content": answers[-1]})
    return answers


@pytest.mark.usefixtures("questions")
@pytest.mark.wide
@pytest.mark.parametrize(("decoding", "batch"), [(STRICT, 1), (PLAIN, 1), (STRICT, 3)])
def test_a_conversation_is_that_of_plain_transformers(
    repository: Repository, turn_pair: LoadedPair, decoding: DecodingConfig, batch: int
) -> None:
    run_id = turn_new_run(repository, decoding, batch=batch)
    run(repository, turn_pair, run_id)
    assert repository.run(run_id).status == "finished"
    assert texts(repository, run_id) == by_transformers(turn_pair, QUESTIONS)
    generations = repository.generations(run_id)
    assert [(g.turn, g.prompt, g.example_id) for g in generations] == [
        (0, "One stone?", "81"), (1, "And two?", "81/2"),
        (0, "A bird", "82"), (1, "A second bird", "82/2"), (2, "Both", "82/3"), (0, "Alone", "83"),
    ]  # fmt: skip


@pytest.mark.usefixtures("questions")
def test_figures_are_sums_over_turns(repository: Repository, turn_pair: LoadedPair) -> None:
    run_id, target = turn_new_run(repository, FUZZY), turn_new_run(repository, PLAIN)
    run(repository, turn_pair, run_id, target)
    generations, traces = repository.generations(run_id), dict(repository.traces(run_id))
    metrics = repository.run(run_id).metrics or {}
    rounds = [record for position in traces for record in traces[position]]
    assert metrics["tokens"] == sum(len(r.emitted) for r in rounds) == sum(g.tokens for g in generations)
    assert metrics["rounds"] == len(rounds)
    assert metrics["drafted"] == sum(len(r.drafted) for r in rounds)
    assert metrics["accepted"] == sum(r.accepted for r in rounds)
    assert metrics["n"] == 6
    assert metrics["seconds"] == pytest.approx(sum(g.seconds for g in generations))
    assert all(g.tokens <= 12 for g in generations)  # the limit is that of a turn
    assert {name: metrics[name] for name in summarise(generations, None)} == summarise(generations, None)
    # A conversation is held against the target's as one text.
    own, others = texts(repository, run_id), texts(repository, target)
    same = [own[start:end] == others[start:end] for start, end in ((0, 2), (2, 5), (5, 6))]
    assert metrics["same_text"] == pytest.approx(sum(same) / 3)
    # Later turns follow what each wrote, so they are no sign of another template.
    runs = [repository.run(run_id), repository.run(target)]
    prompts = repository.prompts([run_id, target])
    assert own != others
    assert rendered_differently(runs, prompts) == []
    assert any(prompts[run_id][p].prompt_hash != prompts[target][p].prompt_hash for p in (1, 3, 4))
    assert rescore(repository, run_id) == 0


class Killed(BaseException):
    pass


@pytest.mark.usefixtures("questions")
@pytest.mark.parametrize(("done", "batch"), some(product([1, 3, 4], [1, 2]), (1, 2), (3, 1)))
def test_a_run_that_was_killed_goes_on_within_a_conversation(
    repository: Repository, turn_pair: LoadedPair, batch: int, done: int
) -> None:
    whole, broken = turn_new_run(repository, FUZZY, batch=batch), turn_new_run(repository, FUZZY, batch=batch)
    run(repository, turn_pair, whole)
    begun: list[int] = []

    def stop(view: RunView) -> None:
        if len(begun) == done:
            raise Killed
        begun.append(view.prompts_done)

    with pytest.raises(Killed):
        run(repository, turn_pair, broken, observer=RunObserver(stop))
    before = repository.generations(broken)
    assert len(before) == done
    run(repository, turn_pair, broken)
    after = {g.position: g for g in repository.generations(broken)}
    assert [after[g.position] for g in before] == before
    assert Counter(g.position for g in repository.generations(broken)) == Counter(range(6))
    assert texts(repository, broken) == texts(repository, whole)
    assert repository.run(broken).status == "finished"


@pytest.mark.usefixtures("questions")
@pytest.mark.parametrize("questions", [[["x" * 600, "And?"], ["Fine", "Too"]]], indirect=True)
def test_a_turn_whose_earlier_one_failed_is_not_asked(repository: Repository, turn_pair: LoadedPair) -> None:
    run_id = turn_new_run(repository, limit=4)  # the first prompt is longer than the context
    run(repository, turn_pair, run_id)
    first, second, *others = repository.generations(run_id)
    assert (first.outcome, second.outcome) == ("failed", "failed")
    assert "An earlier turn of this conversation failed" in (second.error or "")
    assert [g.outcome for g in others] == ["unscored", "unscored"]
    assert (repository.run(run_id).metrics or {})["tokens"] == sum(g.tokens for g in others)


@pytest.mark.usefixtures("questions")
@pytest.mark.wide
def test_bounds_are_measured_behind_what_was_written(repository: Repository, turn_pair: LoadedPair) -> None:
    run_id = turn_new_run(repository, FUZZY, limit=2)
    run(repository, turn_pair, run_id)
    sampled = bounds._sample_positions(repository, run_id, 100, 0)
    answer = repository.generations(run_id)[0].text
    assert [text.prompt for text in sampled] == [
        "One stone?", (("user", "One stone?"), ("assistant", answer), ("user", "And two?")),
    ]  # fmt: skip


@pytest.mark.usefixtures("questions")
def test_replay_needs_prompts_that_stand_alone(turn_pair: LoadedPair) -> None:
    with pytest.raises(UnfitTask, match="same prompts for every setting"):
        record(turn_pair, get_task(TASK), 2)


@pytest.mark.usefixtures("questions")
def test_the_first_turns_are_those_of_the_task_without_turns() -> None:
    alone, turns = get_task("mt-bench"), get_task(TASK)
    assert [e for e in turns.all_examples() if not e.turn] == list(alone.all_examples())
    assert (alone.size, turns.size) == (3, 6)


@pytest.mark.usefixtures("questions")
@pytest.mark.wide
def test_pages_show_each_turn_and_what_was_said_before(repository: Repository, turn_pair: LoadedPair) -> None:
    run_id, target = turn_new_run(repository, FUZZY, limit=5), turn_new_run(repository, PLAIN, limit=5)
    run(repository, turn_pair, run_id, target)
    generations = repository.generations(run_id)
    listed = prompts_html(run_id, generations, None, filtered=False)
    assert "Turn 2: And two?" in listed
    assert "Turn 3: Both" in listed
    third = prompt_html(generations[4], None, earlier=generations[2:4])
    assert "Prompt 5, turn 3 of a conversation" in third
    for said in generations[2:4]:
        assert escape(said.prompt) in third
        assert escape(said.text) in third
    paired = pairs_html(pair_up(repository, run_id, target).pairs, "a", "b")
    assert paired.count("turn 2 of a conversation: each follows its own answers") == 2


@pytest.mark.usefixtures("questions")
@pytest.mark.wide
def test_matched_points_take_a_conversation_as_one_prompt(repository: Repository, turn_pair: LoadedPair) -> None:
    ids = [turn_new_run(repository, decoding) for decoding in (PLAIN, STRICT, FUZZY)]
    run(repository, turn_pair, *ids)
    runs, prompts = [repository.run(id) for id in ids], repository.prompts(ids)
    quality, settings, places = comparable(runs, prompts)
    assert places == list(range(6))
    target, exact, _ = settings
    measured = measured_of(settings, target, exact, places, prompts, COSTS["target_passes"], quality)
    assert measured.cost.shape == (6, 3)  # prompts, settings
    curves = Curves(measured, resamples=2)
    assert curves.n == 3  # conversations
    assert curves._tables[1][1].tolist() == [sum(prompts[id][i].rounds for i in (2, 3, 4)) for id in ids]
