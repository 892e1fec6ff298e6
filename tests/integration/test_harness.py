from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from fsd_core.benchmarks.harness import execute_run, negative_log_likelihood, prompt_seed, run_example
from fsd_core.benchmarks.metrics import summarise
from fsd_core.benchmarks.tasks import Example, get_task
from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    FuzzyReducible,
    RunConfig,
    SamplingConfig,
    SettingConfig,
    Speculative,
)
from fsd_core.decoding.decoder import Decoder
from fsd_core.decoding.trace import StepRecord
from fsd_core.errors import Cancelled, DatabaseUnavailable, FsdError, ModelUnavailable
from fsd_core.models.loading import LoadedPair, make_pair
from fsd_core.testing.toy import related, toy_model, toy_pair, toy_tokenizer
from fsd_core.tracking.database.repository import Repository
from fsd_core.tracking.database.session import open_database, upgrade
from fsd_core.tracking.records import RunView

TASK = get_task("arithmetic")
SAMPLED = DecodingConfig(
    acceptance=FuzzyReducible(threshold=0.05),
    topology=ChainTopology(length=3),
    sampling=SamplingConfig(temperature=1.0),
    max_new_tokens=10,
)


@pytest.fixture(scope="module")
def pair() -> LoadedPair:
    return toy_pair()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    url = f"sqlite:///{tmp_path / 'fsd.db'}"
    upgrade(url)
    return Repository(open_database(url))


def new_run(repository: Repository, decoding: DecodingConfig = SAMPLED, limit: int = 5, seed: int = 0) -> str:
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


def test_a_run_keeps_every_prompt_its_trace_and_its_figures(repository: Repository, pair: LoadedPair) -> None:
    run_id, seen = new_run(repository), []
    execute_run(repository, run_id, lambda *_: pair, seen.append)

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

    config = RunConfig(setting=SettingConfig(decoding=SAMPLED), limit=1, device="cpu", dtype="float32")
    execute_run(repository, repository.create_run(config), loader)
    assert asked == [("bundled", "cpu", "float32")]


def test_a_run_that_was_interrupted_goes_on_where_it_stood(repository: Repository, pair: LoadedPair) -> None:
    whole, broken = new_run(repository), new_run(repository)
    execute_run(repository, whole, lambda *_: pair)

    with pytest.raises(RuntimeError, match="lost the claim"):
        execute_run(repository, broken, lambda *_: pair, Stops(2, RuntimeError("lost the claim")))
    assert repository.run(broken).status == "running"
    before = repository.generations(broken)
    assert [g.position for g in before] == [0, 1]

    execute_run(repository, broken, lambda *_: pair)
    assert repository.run(broken).status == "finished"
    assert repository.generations(broken)[:2] == before
    assert texts(repository, broken) == texts(repository, whole)


def test_a_finished_run_is_left_alone(repository: Repository, pair: LoadedPair) -> None:
    run_id = new_run(repository, limit=1)
    execute_run(repository, run_id, lambda *_: pair)
    finished = repository.run(run_id)

    def never(*_: str) -> LoadedPair:
        raise AssertionError("nothing was to be loaded")

    execute_run(repository, run_id, never)
    assert repository.run(run_id) == finished


def test_cancelling_keeps_what_is_done(repository: Repository, pair: LoadedPair) -> None:
    run_id = new_run(repository)
    with pytest.raises(Cancelled):
        execute_run(repository, run_id, lambda *_: pair, Stops(2, Cancelled("Stopped on request.")))
    run = repository.run(run_id)
    assert (run.status, run.prompts_done) == ("cancelled", 2)


def test_a_pair_that_cannot_be_loaded_fails_the_run_with_its_sentence(repository: Repository) -> None:
    run_id = new_run(repository)

    def broken(*_: str) -> LoadedPair:
        raise ModelUnavailable("The folder is empty.")

    with pytest.raises(ModelUnavailable):
        execute_run(repository, run_id, broken)
    run = repository.run(run_id)
    assert (run.status, run.error) == ("failed", "The folder is empty.")


def test_a_database_that_goes_away_leaves_the_run_to_be_continued(repository: Repository, pair: LoadedPair) -> None:
    run_id = new_run(repository)
    with pytest.raises(DatabaseUnavailable):
        execute_run(repository, run_id, lambda *_: pair, Stops(1, DatabaseUnavailable("It is locked.")))
    assert repository.run(run_id).status == "running"


def test_a_prompt_that_fails_does_not_stop_the_run(repository: Repository) -> None:
    # A context in which the short problems fit and the long ones do not.
    examples = TASK.examples(12)
    lengths = sorted(len(example.prompt) for example in examples)
    run_id = new_run(repository, limit=12)
    execute_run(repository, run_id, lambda *_: narrow_pair(lengths[6]))

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
    with pytest.raises(FsdError, match="Every prompt of the run failed"):
        execute_run(repository, run_id, lambda *_: narrow_pair(8))
    run = repository.run(run_id)
    assert run.status == "failed"
    assert run.prompts_done == 3


def test_greedy_speculation_writes_what_the_target_alone_writes(repository: Repository, pair: LoadedPair) -> None:
    alone, speculative = (
        new_run(repository, DecodingConfig(acceptance=rule, max_new_tokens=16))
        for rule in (Autoregressive(), Speculative())
    )
    for run_id in (alone, speculative):
        execute_run(repository, run_id, lambda *_: pair)
    assert texts(repository, alone) == texts(repository, speculative)
    figures = [repository.run(run_id).metrics or {} for run_id in (alone, speculative)]
    assert figures[0]["mean_acceptance_length"] == 1 < figures[1]["mean_acceptance_length"]
    assert figures[0]["negative_log_likelihood"] == pytest.approx(figures[1]["negative_log_likelihood"], rel=1e-4)


def test_an_output_depends_on_seed_and_position_alone(pair: LoadedPair) -> None:
    decoder, example = Decoder(pair, SAMPLED), TASK.examples(1)[0]
    first = run_example(decoder, TASK, example, 3, seed=1)
    again = run_example(Decoder(pair, SAMPLED), TASK, example, 3, seed=1)
    assert first.text == again.text
    assert run_example(decoder, TASK, example, 4, seed=1).text != first.text
    assert run_example(decoder, TASK, example, 3, seed=2).text != first.text


def test_an_empty_prompt_is_a_failed_one(pair: LoadedPair) -> None:
    record = run_example(Decoder(pair, SAMPLED), TASK, Example("x", "  ", "7"), 0, seed=0)
    assert (record.outcome, record.records) == ("failed", [])
    assert record.error == "The prompt is empty: write at least one word."


def test_prompt_seeds_are_spread_and_fit_31_bits() -> None:
    seeds = {prompt_seed(seed, position) for seed in range(20) for position in range(500)}
    assert len(seeds) == 20 * 500
    assert min(seeds) >= 0
    assert 2**30 < max(seeds) < 2**31


@pytest.mark.parametrize(("probability", "expected"), [(1.0, 0.0), (0.5, math.log(2)), (0.0, 149 * math.log(2))])
def test_negative_log_likelihood_is_finite(probability: float, expected: float) -> None:
    step = StepRecord((), 0, (5,), ("plain",), (), (), (), (probability,), 0.1)
    assert negative_log_likelihood([step, replace(step, emitted_probability=(1.0,))]) == pytest.approx(expected)


def narrow_pair(context: int) -> LoadedPair:
    """A toy pair whose models hold ``context`` tokens; a token is a byte."""
    tokenizer = toy_tokenizer()
    target = toy_model(len(tokenizer), seed=0, context=context)
    return make_pair(toy_pair().spec, tokenizer, target, related(target, 0.3, seed=1))
