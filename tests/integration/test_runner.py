"""Runs of real pairs from prompt to stored figures, with the bounds of their distributions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
import torch
from sqlalchemy import update

from fsd_core.analysis.comparability import read_differently
from fsd_core.config import (
    Autoregressive,
    DecodingConfig,
    DraftOnly,
    FuzzyReducible,
    RunConfig,
    SamplingConfig,
    SettingConfig,
    Speculative,
)
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.trace import RoundRecord
from fsd_core.errors import (
    Cancelled,
    DatabaseUnavailable,
    InvalidSetting,
    ModelUnavailable,
    Stale,
    UnknownName,
    WrongState,
)
from fsd_core.evaluation import bounds, runner
from fsd_core.evaluation.aggregate import summarise
from fsd_core.evaluation.harness import negative_log_likelihood, prompt_seed, run_example, run_examples, thought_tokens
from fsd_core.evaluation.rescoring import rescore
from fsd_core.evaluation.runner import RunObserver, execute_runs
from fsd_core.metrics import sessions_sentence
from fsd_core.models.loading import LoadedPair, load_pair, make_pair
from fsd_core.models.prompt import encode_prompt
from fsd_core.rules.rates import acceptance_rate
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import GenerationRow
from fsd_core.tasks import Example, Score, Task, get_task
from fsd_core.tasks.base import judged
from fsd_core.tasks.readings import READING_VERSION
from fsd_core.testing import SAMPLED_FSD, related, toy_model, toy_pair, toy_tokenizer
from fsd_core.theory import optimal_acceptance
from tests.tools.threads_kept import threads_kept

TASK = get_task("arithmetic")


def new_run(repository: Repository, decoding: DecodingConfig = SAMPLED_FSD, limit: int = 5, seed: int = 0) -> str:
    return repository.create_run(
        RunConfig(setting=SettingConfig(pair="bundled", decoding=decoding), limit=limit, seed=seed)
    )


def texts(repository: Repository, run_id: str) -> dict[int, str]:
    return {g.position: g.text for g in repository.generations(run_id)}


class Stops:
    """Lets ``prompts`` prompts be done, then raises."""

    def __init__(self, prompts: int, error: BaseException) -> None:
        self.left, self.error = prompts, error

    def __call__(self, run: RunView) -> None:
        if self.left == 0:
            raise self.error
        self.left -= 1


@pytest.mark.wide
def test_a_run_keeps_every_prompt_its_trace_and_its_figures(repository: Repository, pair: LoadedPair) -> None:
    run_id, seen = new_run(repository), []
    execute_runs(repository, [run_id], lambda *_: pair, RunObserver(seen.append))

    run = repository.run(run_id)
    assert (run.status, run.prompts_done, run.prompts_total) == ("finished", 5, 5)
    assert [view.prompts_done for view in seen] == [0, 1, 2, 3, 4]
    assert run.provenance is not None

    generations, traces = repository.generations(run_id), dict(repository.traces(run_id))
    assert [g.position for g in generations] == [0, 1, 2, 3, 4]
    for generation, example in zip(generations, TASK.examples(5), strict=True):
        steps = traces[generation.position]
        assert (generation.example_id, generation.prompt) == (example.id, example.prompt)
        assert generation.reference == example.reference
        assert generation.tokens == sum(len(step.emitted) for step in steps) <= 10
        assert generation.rounds == len(steps)
        assert generation.accepted == sum(step.accepted for step in steps) <= generation.drafted
        assert generation.fuzzy <= generation.accepted + len(steps)
        assert 0 < generation.time_to_first_token <= generation.seconds
    assert run.metrics == summarise(generations, traces.values())


def test_the_loader_is_asked_for_what_the_run_says(repository: Repository, pair: LoadedPair) -> None:
    asked = []

    def loader(*arguments: str) -> LoadedPair:
        asked.append(arguments)
        return pair

    config = RunConfig(setting=SettingConfig(decoding=SAMPLED_FSD), limit=1, device="cpu", dtype="float32")
    execute_runs(repository, [repository.create_run(config)], loader)
    assert asked == [("bundled", "cpu", "float32")]


@pytest.mark.wide
def test_a_run_that_was_interrupted_goes_on_where_it_stood(repository: Repository, pair: LoadedPair) -> None:
    whole, broken = new_run(repository), new_run(repository)
    execute_runs(repository, [whole], lambda *_: pair)

    with pytest.raises(RuntimeError, match="lost the claim"):
        execute_runs(repository, [broken], lambda *_: pair, RunObserver(Stops(2, RuntimeError("lost the claim"))))
    assert repository.run(broken).status == "running"
    before = repository.generations(broken)
    assert [g.position for g in before] == [0, 1]

    execute_runs(repository, [broken], lambda *_: pair)
    assert repository.run(broken).status == "finished"
    assert repository.generations(broken)[:2] == before
    assert texts(repository, broken) == texts(repository, whole)


@pytest.mark.wide
def test_a_run_that_goes_on_with_other_threads_says_so(repository: Repository, pair: LoadedPair) -> None:
    run_id = new_run(repository)
    with threads_kept():
        for threads, prompts in ((2, 1), (2, 1), (1, 3)):  # a worker that goes on as before keeps the sitting
            torch.set_num_threads(threads)
            stop = Stops(prompts, RuntimeError("killed"))
            with pytest.raises(RuntimeError) if prompts < 3 else nullcontext():
                execute_runs(repository, [run_id], lambda *_: pair, RunObserver(stop))
    run, positions = repository.run(run_id), repository.session_positions(run_id)
    assert [sitting.conditions["threads"] for sitting in run.measurement_sessions] == [2, 1]
    assert [positions[sitting.id] for sitting in run.measurement_sessions] == [[0, 1], [2, 3, 4]]
    assert (run.status, run.speed_mixed) == ("finished", ("number of threads",))
    assert sessions_sentence([(sitting.conditions, positions[sitting.id]) for sitting in run.measurement_sessions]) == (
        "Prompts 1 to 2 were measured with 2 threads, the other 3 with 1 thread."
    )


@pytest.mark.wide
def test_threads_that_change_within_a_process_are_another_sitting(repository: Repository, pair: LoadedPair) -> None:
    run_id = new_run(repository, limit=4)
    with threads_kept():  # as threads.fit does where a neighbour comes and goes
        execute_runs(
            repository,
            [run_id],
            lambda *_: pair,
            RunObserver(lambda run: torch.set_num_threads(1 + run.prompts_done % 2)),
        )
    found = repository.session_positions(run_id)
    assert list(found.values()) == [[0, 2], [1, 3]]


def test_a_run_never_goes_on_with_other_weights(repository: Repository, pair: LoadedPair) -> None:
    run_id = new_run(repository)
    of = {name: replace(pair, weights={"target": name, "draft": "d"}) for name in ("one", "other")}
    with pytest.raises(RuntimeError, match="lost the claim"):
        execute_runs(repository, [run_id], lambda *_: of["one"], RunObserver(Stops(2, RuntimeError("lost the claim"))))
    execute_runs(repository, [run_id], lambda *_: of["other"])
    run = repository.run(run_id)
    assert (run.status, len(repository.generations(run_id))) == ("failed", 2)
    assert "have changed since the first 2 prompts" in (run.error or "")
    assert (run.metrics or {})["n"] == 2  # what is done keeps its figures


@pytest.mark.wide
def test_a_run_never_goes_on_with_prompts_that_are_rendered_otherwise(repository: Repository) -> None:
    """Not even where no weights were recorded, as of modules in memory."""
    pair = toy_pair()
    pair.tokenizer.chat_template = "{{ messages[0]['content'] }}"
    kept, stopped = new_run(repository), new_run(repository)
    for run_id in (kept, stopped):
        with pytest.raises(RuntimeError, match="killed"):
            execute_runs(repository, [run_id], lambda *_: pair, RunObserver(Stops(2, RuntimeError("killed"))))
    hashes = [counts.prompt_hash for counts in repository.prompts([kept])[kept].values()]
    assert len(set(hashes)) == 2
    assert None not in hashes
    pair.tokenizer.chat_template = "{{ messages[0]['content'] }}{{ '' }}"  # another file, and the same prompts
    execute_runs(repository, [kept], lambda *_: pair)
    assert repository.run(kept).status == "finished"
    pair.tokenizer.chat_template = "{{ messages[0]['content'] }} Think."
    execute_runs(repository, [stopped], lambda *_: pair)
    run = repository.run(stopped)
    assert (run.status, run.prompts_done) == ("failed", 2)
    assert "chat template or the tokenizer of 'bundled' has changed since the first 2 prompts" in (run.error or "")


def test_a_finished_run_is_left_alone(repository: Repository, pair: LoadedPair) -> None:
    run_id = new_run(repository, limit=1)
    execute_runs(repository, [run_id], lambda *_: pair)
    finished = repository.run(run_id)

    def never(*_: str) -> LoadedPair:
        raise AssertionError("nothing was to be loaded")

    execute_runs(repository, [run_id], never)
    assert repository.run(run_id) == finished


def test_cancelling_keeps_what_is_done(repository: Repository, pair: LoadedPair) -> None:
    run_id = new_run(repository)
    with pytest.raises(Cancelled):
        execute_runs(repository, [run_id], lambda *_: pair, RunObserver(Stops(2, Cancelled("Stopped on request."))))
    run = repository.run(run_id)
    assert (run.status, run.prompts_done) == ("cancelled", 2)
    assert run.metrics == summarise(repository.generations(run_id), dict(repository.traces(run_id)).values())


def test_what_was_cancelled_before_its_first_prompt_has_no_figures(repository: Repository, pair: LoadedPair) -> None:
    run_id = new_run(repository)
    with pytest.raises(Cancelled):
        execute_runs(repository, [run_id], lambda *_: pair, RunObserver(Stops(0, Cancelled("Stopped on request."))))
    assert (repository.run(run_id).status, repository.run(run_id).metrics) == ("cancelled", None)


@pytest.mark.wide
def test_runs_take_turns_and_each_is_first_as_often(repository: Repository, pair: LoadedPair) -> None:
    runs = [new_run(repository, limit=6, seed=seed) for seed in range(3)]
    turns: list[tuple[str, int]] = []
    execute_runs(repository, runs, lambda *_: pair, RunObserver(lambda run: turns.append((run.id, run.prompts_done))))
    assert [done for _, done in turns] == [position for position in range(6) for _ in runs]
    for position in range(6):
        order = [id for id, done in turns if done == position]
        assert order == runs[position % 3 :] + runs[: position % 3]
    assert {repository.run(id).status for id in runs} == {"finished"}


@pytest.mark.wide
def test_runs_that_stand_at_different_prompts_go_on_together(repository: Repository, pair: LoadedPair) -> None:
    ahead, behind, fresh = (new_run(repository, seed=seed) for seed in range(3))
    for run_id, prompts in ((ahead, 4), (behind, 2)):
        with pytest.raises(RuntimeError):
            execute_runs(repository, [run_id], lambda *_: pair, RunObserver(Stops(prompts, RuntimeError("killed"))))
    turns: list[tuple[str, int]] = []
    execute_runs(
        repository,
        [ahead, behind, fresh],
        lambda *_: pair,
        RunObserver(lambda run: turns.append((run.id, run.prompts_done))),
    )
    assert {run_id: [done for id, done in turns if id == run_id] for run_id in (ahead, behind, fresh)} == {
        ahead: [4], behind: [2, 3, 4], fresh: [0, 1, 2, 3, 4],
    }  # fmt: skip
    assert {repository.run(id).status for id in (ahead, behind, fresh)} == {"finished"}


@pytest.mark.wide
def test_a_run_that_fails_does_not_stop_the_others(repository: Repository, pair: LoadedPair) -> None:
    missing, cut_short, good = (new_run(repository, limit=3, seed=seed) for seed in range(3))
    asked = []

    def loader(*arguments: str) -> LoadedPair:
        asked.append(arguments)
        if len(asked) == 1:
            raise ModelUnavailable("The folder is empty.")
        return pair

    def fails_meanwhile(run: RunView) -> None:
        if run.prompts_done == 1:
            repository.fail_run(cut_short, "A person ended it.")

    execute_runs(repository, [missing, cut_short, good], loader, RunObserver(fails_meanwhile))
    assert [repository.run(id).status for id in (missing, cut_short, good)] == ["failed", "failed", "finished"]
    assert repository.run(missing).error == "The folder is empty."
    assert (repository.run(cut_short).error, repository.run(cut_short).prompts_done) == ("A person ended it.", 1)


def test_an_error_that_nobody_foresaw_is_told_and_logged(
    repository: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = new_run(repository)

    def broken(*_: str) -> LoadedPair:
        raise ZeroDivisionError("of ours")

    execute_runs(repository, [run_id], broken)
    run = repository.run(run_id)
    assert run.status == "failed"
    assert "unexpected error occurred (ZeroDivisionError: of ours)" in (run.error or "")
    assert "Traceback" not in (run.error or "")
    assert "in broken" in caplog.text


def test_a_pair_that_cannot_be_loaded_fails_the_run_with_its_sentence(repository: Repository) -> None:
    run_id = new_run(repository)

    def broken(*_: str) -> LoadedPair:
        raise ModelUnavailable("The folder is empty.")

    execute_runs(repository, [run_id], broken)
    run = repository.run(run_id)
    assert (run.status, run.error) == ("failed", "The folder is empty.")


@pytest.mark.wide
def test_a_database_that_goes_away_leaves_the_run_to_be_continued(repository: Repository, pair: LoadedPair) -> None:
    run_id = new_run(repository)
    with pytest.raises(DatabaseUnavailable):
        execute_runs(repository, [run_id], lambda *_: pair, RunObserver(Stops(1, DatabaseUnavailable("It is locked."))))
    assert repository.run(run_id).status == "running"


@pytest.mark.wide
def test_a_prompt_that_fails_does_not_stop_the_run(repository: Repository) -> None:
    # A context in which the short problems fit and the long ones do not.
    examples = TASK.examples(12)
    lengths = sorted(len(example.prompt) for example in examples)
    run_id = new_run(repository, limit=12)
    execute_runs(repository, [run_id], lambda *_: narrow_pair(lengths[6]))

    outcomes = {g.position: g.outcome for g in repository.generations(run_id)}
    for position, example in enumerate(examples):
        assert (outcomes[position] == "failed") == (len(example.prompt) >= lengths[6])
    run = repository.run(run_id)
    assert run.status == "finished"
    assert run.metrics is not None
    assert run.metrics["failed"] == 6
    assert run.metrics["n"] == 12
    failed = repository.generations(run_id, outcome="failed")[0]
    assert "shorten it" in (failed.error or "")
    assert (failed.stop_reason, failed.tokens, failed.text) == ("error", 0, "")


def test_a_run_in_which_nothing_could_be_generated_has_failed(repository: Repository) -> None:
    run_id = new_run(repository, limit=3)
    execute_runs(repository, [run_id], lambda *_: narrow_pair(8))
    run = repository.run(run_id)
    assert run.status == "failed"
    assert "Every prompt of the run failed" in (run.error or "")
    assert run.prompts_done == 3


@pytest.mark.wide
def test_greedy_speculation_writes_what_the_target_alone_writes(repository: Repository, pair: LoadedPair) -> None:
    alone, speculative = (
        new_run(repository, DecodingConfig(acceptance=rule, max_new_tokens=16))
        for rule in (Autoregressive(), Speculative())
    )
    for run_id in (alone, speculative):
        execute_runs(repository, [run_id], lambda *_: pair)
    assert texts(repository, alone) == texts(repository, speculative)
    figures = [repository.run(run_id).metrics or {} for run_id in (alone, speculative)]
    assert figures[0]["mean_acceptance_length"] == 1 < figures[1]["mean_acceptance_length"]
    assert figures[0]["negative_log_likelihood"] == pytest.approx(figures[1]["negative_log_likelihood"], rel=1e-4)


@pytest.mark.wide
def test_runs_beside_the_target_alone_say_how_far_they_stray(repository: Repository, pair: LoadedPair) -> None:
    rules = (Autoregressive(), Speculative(), FuzzyReducible(divergence="js", threshold=0.5), DraftOnly())
    alone, exact, loose, drafted = (
        new_run(repository, DecodingConfig(acceptance=rule, max_new_tokens=16)) for rule in rules
    )
    other_seed = new_run(repository, DecodingConfig(max_new_tokens=16), seed=1)
    execute_runs(repository, [loose, exact, alone, drafted, other_seed], lambda *_: pair)
    figures = {id: repository.run(id).metrics or {} for id in (alone, exact, loose, drafted, other_seed)}
    assert figures[exact]["same_text"] == 1.0
    assert figures[exact]["excess_nll"] == pytest.approx(0.0, abs=1e-5)
    mine, theirs = texts(repository, loose), texts(repository, alone)
    assert figures[loose]["same_text"] == sum(mine[i] == theirs[i] for i in mine) / len(mine) < 1
    assert figures[loose]["excess_nll"] > 0
    for id in (alone, drafted, other_seed):
        assert "same_text" not in figures[id]


def test_texts_are_judged_again_without_being_written_again(
    repository: Repository, pair: LoadedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = new_run(repository)
    with pytest.raises(WrongState):
        rescore(repository, run_id)
    execute_runs(repository, [run_id], lambda *_: pair)
    before, figures = repository.generations(run_id), repository.run(run_id).metrics or {}
    repository.mark_synced(repository.run(run_id), "copy")
    assert rescore(repository, run_id) == 0
    assert not repository.unsynced_runs()

    # A scorer that was mended: now any text is right whose second character is one of these.
    monkeypatch.setattr(
        type(TASK),
        "score_answer",
        lambda self, text, example, stop: Score("correct" if text[1:2] < "h" else "wrong", text[:9]),
    )
    assert rescore(repository, run_id) == 5
    after = repository.generations(run_id)
    assert [g.text for g in after] == [g.text for g in before]
    assert [g.answer for g in after] == [g.text[:9] for g in before]
    solved = sum(g.text[1:2] < "h" for g in before)
    found = repository.run(run_id).metrics or {}
    assert (found["correct"], found["wrong"], found["truncated"]) == (solved, 5 - solved, 0)
    assert found["tokens_per_second"] == figures["tokens_per_second"]
    assert [run.id for run in repository.unsynced_runs()] == [run_id]


def test_prompts_that_the_task_no_longer_has_are_not_judged_by_others(
    repository: Repository, pair: LoadedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = new_run(repository)
    execute_runs(repository, [run_id], lambda *_: pair)
    monkeypatch.setattr(
        type(TASK), "all_examples", lambda self: tuple(Example(str(i), f"Other {i}", "1") for i in range(9))
    )
    with pytest.raises(Stale):
        rescore(repository, run_id)


def narrow_pair(context: int) -> LoadedPair:
    """A toy pair whose models hold ``context`` tokens; a token is a byte."""
    tokenizer = toy_tokenizer()
    target = toy_model(len(tokenizer), seed=0, context=context)
    return make_pair(toy_pair().spec, tokenizer, target, related(target, 0.3, seed=1))


def test_texts_side_by_side_are_those_written_alone(repository: Repository, pair: LoadedPair) -> None:
    def config(batch: int) -> RunConfig:
        return RunConfig(setting=SettingConfig(pair="bundled", decoding=SAMPLED_FSD), limit=7, batch=batch)

    alone, together, broken = (repository.create_run(config(batch)) for batch in (1, 3, 3))
    execute_runs(repository, [alone, together], lambda *_: pair)
    assert repository.run(together).status == "finished"
    assert texts(repository, together) == texts(repository, alone)
    same = ("tokens", "rounds", "accepted", "outcome", "stop_reason")
    for one, other in zip(repository.generations(together), repository.generations(alone), strict=True):
        assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]
        assert one.seconds > 0

    with pytest.raises(RuntimeError, match="lost the claim"):  # in the midst of a batch
        execute_runs(repository, [broken], lambda *_: pair, RunObserver(Stops(2, RuntimeError("lost the claim"))))
    assert 0 < len(repository.generations(broken)) < 7
    execute_runs(repository, [broken], lambda *_: pair)
    assert texts(repository, broken) == texts(repository, alone)


def test_a_prompt_that_cannot_be_done_leaves_the_batch_alone(repository: Repository) -> None:
    lengths = [len(example.prompt) for example in TASK.examples(5)]
    context = sorted(lengths)[2] + 1
    narrow = narrow_pair(context)
    config = RunConfig(setting=SettingConfig(pair="bundled", decoding=SAMPLED_FSD), limit=5, batch=4)
    run_id = repository.create_run(config)
    execute_runs(repository, [run_id], lambda *_: narrow)
    outcomes = {g.position: g.outcome for g in repository.generations(run_id)}
    assert [outcomes[i] == "failed" for i in range(5)] == [length >= context for length in lengths]
    assert len(set(outcomes.values())) > 1


class Death(BaseException):
    """The end of a process, as far as one process can play it."""


def killed_by(repository: Repository, run_id: str, pair: LoadedPair, deadly: int) -> int:
    """Does a run whose prompt at ``deadly`` ends the process that writes it; how many processes that took."""
    deaths = 0

    @contextmanager
    def writing(run_id: str, positions: Sequence[int]) -> Iterator[None]:
        at_work.update({run_id: list(positions)})
        if deadly in positions and deadly not in (g.position for g in repository.generations(run_id)):
            raise Death
        yield
        at_work.clear()

    while deaths < 20:
        at_work: dict[str, list[int]] = {}
        try:
            execute_runs(repository, [run_id], lambda *_: pair, RunObserver(writing=writing))
        except Death:
            deaths += 1
            repository.worker_lost({}, at_work)
        else:
            break
    return deaths


@pytest.mark.parametrize(
    ("batch", "deadly"),
    [(1, 0), (1, 6), (3, 3), *(pytest.param(*more, marks=pytest.mark.long) for more in ((1, 3), (3, 0), (3, 6)))],
)
def test_a_deadly_prompt_is_found_and_set_aside(
    repository: Repository, pair: LoadedPair, batch: int, deadly: int
) -> None:
    config = RunConfig(setting=SettingConfig(pair="bundled", decoding=SAMPLED_FSD), limit=7, batch=batch)
    undisturbed, disturbed = repository.create_run(config), repository.create_run(config)
    execute_runs(repository, [undisturbed], lambda *_: pair)
    assert killed_by(repository, disturbed, pair, deadly) == 3
    run = repository.run(disturbed)
    assert (run.status, run.prompts_done, (run.metrics or {})["failed"], run.losses) == ("finished", 7, 1, {})
    expected, found = texts(repository, undisturbed), texts(repository, disturbed)
    assert found == expected | {deadly: ""}
    (failed,) = repository.generations(disturbed, outcome="failed")
    assert "died 3 times at this prompt" in (failed.error or "")


@pytest.mark.parametrize("batch", [1, 3])
def test_a_scorer_that_fails_costs_that_prompt_its_verdict_alone(
    repository: Repository, pair: LoadedPair, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    first = TASK.examples(1)[0]
    score = type(TASK).score_answer

    def fails_at_first(self: Task, text: str, example: Example, stop: str) -> Score:
        if example == first:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return score(self, text, example, stop)

    monkeypatch.setattr(type(TASK), "score_answer", fails_at_first)
    run_id = repository.create_run(
        RunConfig(setting=SettingConfig(pair="bundled", decoding=SAMPLED_FSD), limit=4, batch=batch)
    )
    execute_runs(repository, [run_id], lambda *_: pair)
    run = repository.run(run_id)
    assert (run.status, (run.metrics or {})["failed"], (run.metrics or {})["n"]) == ("finished", 1, 4)
    (failed,) = repository.generations(run_id, outcome="failed")
    assert (failed.position, failed.text != "") == (0, True)
    assert "UnicodeDecodeError" in (failed.error or "")

    monkeypatch.undo()
    assert rescore(repository, run_id) == 1  # the text is there to be judged
    assert repository.count_generations(run_id, outcome="failed") == 0
    assert {g.error for g in repository.generations(run_id)} == {None}


def test_a_run_that_goes_on_under_another_reading_says_so(
    repository: Repository, pair: LoadedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, stop = new_run(repository), RunObserver(Stops(2, RuntimeError("killed")))
    with monkeypatch.context() as earlier:
        earlier.setattr(runner, "READING_VERSION", 1)
        with pytest.raises(RuntimeError, match="killed"):
            execute_runs(repository, [run_id], lambda *_: pair, stop)
    assert repository.run(run_id).reading_versions == (1,)
    execute_runs(repository, [run_id], lambda *_: pair)
    assert repository.run(run_id).reading_versions == (1, READING_VERSION)
    assert "not one accuracy" in read_differently([repository.run(run_id)])
    rescore(repository, run_id)
    assert repository.run(run_id).reading_versions == (READING_VERSION,)


def test_a_run_stores_the_verdicts_of_the_published_filter(
    repository: Repository, pair: LoadedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(TASK), "published_filter", "(.)")
    run_id = new_run(repository, limit=2)
    execute_runs(repository, [run_id], lambda *_: pair)
    assert (repository.run(run_id).metrics or {})["published_correct"] == 0


def test_marks_of_the_models_template_are_stored_and_read_again(repository: Repository) -> None:
    pair, run_id = toy_pair(), new_run(repository, limit=2)
    pair.tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content.split('[/MUSE]')[-1] }}{% else %}"
        "{{ m.content }}{% endif %}{% endfor %}"
    )
    execute_runs(repository, [run_id], lambda *_: pair)
    assert (repository.run(run_id).provenance or {})["thought_marks"] == "[MUSE] … [/MUSE]"
    with repository._database.session() as session:
        of = GenerationRow.run_id == run_id, GenerationRow.position == 0
        values = {"text": "[MUSE]It may be\n#### 1", "stop_reason": "eos", "outcome": "wrong", "answer": "1"}
        session.execute(update(GenerationRow).where(*of).values(values))
    assert rescore(repository, run_id) == 1
    assert repository.generations(run_id)[0].outcome == "truncated"


class AnyText(Task):
    """Whatever is written is right."""

    name, title = "any", "Any text"

    def all_examples(self) -> tuple[Example, ...]:
        return Example("a", "Say", "right"), Example("b", "Say more", "right")

    def score_answer(self, text: str, example: Example, stop_reason: str) -> Score:
        return judged("right" if text else None, example, stop_reason)


def test_an_output_depends_on_seed_and_position_alone(pair: LoadedPair) -> None:
    decoder, example = PairDecoder(pair, SAMPLED_FSD), TASK.examples(1)[0]
    first = run_example(decoder, TASK, example, 3, seed=1)
    again = run_example(PairDecoder(pair, SAMPLED_FSD), TASK, example, 3, seed=1)
    assert first.text == again.text
    assert run_example(decoder, TASK, example, 4, seed=1).text != first.text
    assert run_example(decoder, TASK, example, 3, seed=2).text != first.text


def test_an_empty_prompt_is_a_failed_one(pair: LoadedPair) -> None:
    record = run_example(PairDecoder(pair, SAMPLED_FSD), TASK, Example("x", "  ", "7"), 0, seed=0)
    assert (record.outcome, record.records) == ("failed", [])
    assert record.error == "The prompt is empty: write at least one word."


def test_prompt_seeds_are_spread_and_fit_31_bits() -> None:
    seeds = {prompt_seed(seed, position) for seed in range(20) for position in range(500)}
    assert len(seeds) == 20 * 500
    assert min(seeds) >= 0
    assert 2**30 < max(seeds) < 2**31


@pytest.mark.parametrize(("probability", "expected"), [(1.0, 0.0), (0.5, math.log(2)), (0.0, 149 * math.log(2))])
def test_negative_log_likelihood_is_finite(probability: float, expected: float) -> None:
    step = RoundRecord((), 0, (5,), ("plain",), (), (), (), (probability,), 0.1)
    assert negative_log_likelihood([step, replace(step, emitted_probability=(1.0,))]) == pytest.approx(expected)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(
    ("template_end", "outcome"), [("<think>\n", "truncated"), ("<think>\n\n</think>\n", "correct")]
)
def test_a_text_that_begins_inside_of_a_thought_and_never_leaves_it_has_no_answer(
    pair: LoadedPair, template_end: str, outcome: str, rows: int
) -> None:
    decoder, task = PairDecoder(pair, SAMPLED_FSD), AnyText()
    pair.tokenizer.chat_template = "{{ messages[0]['content'] }}" + template_end
    try:
        records = list(run_examples(decoder, task, dict(enumerate(task.all_examples())), 0, rows))
    finally:
        pair.tokenizer.chat_template = None
    assert [record.outcome for record in records] == [outcome] * 2
    assert [record.thought_tokens for record in records] == [
        record.tokens if outcome == "truncated" else 0 for record in records
    ]


def test_the_tokens_of_thoughts_are_counted_with_their_marks(pair: LoadedPair) -> None:
    def counted(text: str, *, thinking: bool = False) -> int:
        return thought_tokens(pair, pair.tokenizer(text)["input_ids"], text, TASK, thinking)  # a token for each byte

    assert counted("#### 18") == 0
    assert counted("<think>é</think>\n#### 18") == len("<think>é</think>".encode())
    assert counted("a <think>b</think> c <think>d</think> e") == 2 * len("<think>b</think>")
    assert counted("b</think>c") == len("b</think>")
    assert counted("bc", thinking=True) == 2


@pytest.fixture
def bound_repository(tmp_path) -> Repository:
    url = f"sqlite:///{tmp_path}/fsd.db"
    upgrade(url)
    return Repository(open_database(url))


@pytest.fixture(scope="module")
def bound_pair():
    return load_pair("bundled")


def _run(repository: Repository, pair, temperature: float) -> str:
    """Two texts of a few tokens: a position takes a second, for its bounds of 1 to 8 drafts."""
    decoding = DecodingConfig(
        acceptance=Speculative(), sampling=SamplingConfig(temperature=temperature), max_new_tokens=3
    )
    id = repository.create_run(RunConfig(setting=SettingConfig(decoding=decoding), limit=2))
    execute_runs(repository, [id], lambda *_: pair, RunObserver(lambda run: None))
    return id


@pytest.mark.wide
def test_they_are_those_of_the_distributions_where_the_run_has_been(bound_repository, bound_pair):
    """All positions of two texts against the models asked token by token."""
    id = _run(bound_repository, bound_pair, temperature=1.0)
    tokens = bound_repository.run(id).metrics["tokens"]
    told = []
    found = bounds.measure(bound_repository, id, bound_pair, positions=tokens, on_position=lambda *at: told.append(at))
    assert (found["positions"], found["temperature"]) == (tokens, 1.0)
    assert told[-1] == (tokens, tokens)
    expected = {"optimum": 0.0, "rrs": 0.0, "without": 0.0}
    traces = dict(bound_repository.traces(id))
    for generation in bound_repository.generations(id):
        text = encode_prompt(bound_pair.tokenizer, generation.prompt)
        for token in (token for record in traces[generation.position] for token in record.emitted):
            with torch.inference_mode():
                logits = [
                    model.forward(torch.tensor([text]), model.new_cache(len(text)), logits_to_keep=1)[0, 0]
                    for model in (bound_pair.target, bound_pair.draft)
                ]
            p, q = (row.double().softmax(-1) for row in logits)
            expected["optimum"] += optimal_acceptance(p, q, 3, "with_replacement") / tokens
            expected["rrs"] += acceptance_rate("rrs", p, q, 3) / tokens
            expected["without"] += optimal_acceptance(p, q, 2, "without_replacement") / tokens
            text = [*text, token]
    assert found["optima"]["with_replacement"][2]["rate"] == pytest.approx(expected["optimum"], abs=1e-4)
    assert found["optima"]["without_replacement"][1]["rate"] == pytest.approx(expected["without"], abs=1e-4)
    assert found["verifiers"]["rrs"][2]["rate"] == pytest.approx(expected["rrs"], abs=1e-4)
    assert [row["drafts"] for row in found["verifiers"]["spec-hub"]] == [2]
    assert bound_repository.run(id).metrics["bounds"] == [found]
    for name, rows in found["verifiers"].items():  # no verifier beats the optimum of its drafts
        own = found["optima"][bounds.VERIFIERS[name].sampling]
        assert all(row["rate"] <= own[row["drafts"] - 1]["rate"] + 1e-9 for row in rows)


@pytest.mark.wide
def test_each_temperature_is_kept_once_and_a_greedy_run_is_asked_at_1(bound_repository, bound_pair):
    id = _run(bound_repository, bound_pair, temperature=0.0)
    assert bounds.measure(bound_repository, id, bound_pair, positions=1)["temperature"] == 1.0
    bounds.measure(bound_repository, id, bound_pair, temperature=0.5, positions=1)
    again = bounds.measure(bound_repository, id, bound_pair, temperature=1.0, positions=2)
    kept = bound_repository.run(id).metrics["bounds"]
    assert [one["temperature"] for one in kept] == [0.5, 1.0]
    assert kept[1] == again
    assert bound_repository.run(id).metrics["accuracy"] is not None


def test_what_cannot_be_measured_is_refused(bound_repository, bound_pair):
    waiting = bound_repository.create_run(RunConfig(limit=1))
    with pytest.raises(InvalidSetting, match="no finished texts"):
        bounds.measure(bound_repository, waiting, bound_pair)
    with pytest.raises(UnknownName):
        bounds.check(bound_repository, "nobody")
    ended = _run(bound_repository, bound_pair, temperature=0.0)
    with pytest.raises(InvalidSetting, match="expected more than 0"):
        bounds.measure(bound_repository, ended, bound_pair, temperature=0.0)
