"""The form of an experiment as a link asks for it, whatever the link holds."""

from __future__ import annotations

from functools import partial

import pytest

from dashboard.experiments.experiment_form import build_sweep, prefilled
from fsd_core.config import Autoregressive, DecodingConfig, FuzzyReducible, SamplingConfig, Speculative
from fsd_core.errors import UnknownName
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.roles import Person
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.repository import Repository
from fsd_core.tasks.custom.custom_task import add_prompt, find_task
from tests.tools.plausible import new_repository, sweep


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return new_repository(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def run(repository: Repository) -> str:
    """The id of a run of exact SD with 24 prompts."""
    runs = repository.experiment(repository.create_experiment(sweep("Like it", seeds=(3,)), enqueue=False)).runs
    return next(run.id for run in runs if run.decoding.acceptance.kind == "speculative")


def test_what_is_missing_is_measured_like_the_run(repository: Repository, run: str):
    values = prefilled(repository, {"like": run, "rules": "block,draft-only", "top_k": "10", "temperature": "0.5"})
    asked = build_sweep({"name": "", "max_new_tokens": 128, "strict_first": 0} | values)
    assert [one.acceptance.kind for one in asked.decodings] == ["draft-only", "block"]
    assert (asked.limit, asked.seeds, asked.pair, asked.task) == (24, (3,), "bundled", "arithmetic")
    assert {(one.sampling.top_k, one.sampling.temperature) for one in asked.decodings} == {(10, 0.5)}


@pytest.mark.parametrize("like", ["", "f" * 32, "nothing", "<script>"])
def test_a_link_to_no_run_fills_nothing_in(repository: Repository, like: str):
    assert prefilled(repository, {"like": like, "rules": "block"}) == {}


def test_a_run_of_an_unknown_pair_is_told_of(repository: Repository, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(MODEL_PAIRS, "bundled")
    with pytest.raises(UnknownName, match="bundled"):
        prefilled(repository, {"like": run})


def test_what_a_link_names_wrongly_stays_as_the_run_has_it(repository: Repository, run: str):
    values = prefilled(repository, {"like": run, "rules": "magic,<b>", "top_k": "many", "temperature": "inf"})
    assert values["baselines"] == ["autoregressive", "speculative"]
    assert (values["top_k"], values["temperature"]) == (0, 0.0)


def test_the_settings_of_a_job_become_an_experiment_on_a_task_for_its_owner_alone(repository: Repository) -> None:
    shared = {"sampling": SamplingConfig(temperature=0.5), "max_new_tokens": 40}
    rules = (Autoregressive(), Speculative(), FuzzyReducible(threshold=0.3), FuzzyReducible(threshold=None))
    asked = [DecodingConfig(acceptance=rule, **shared) for rule in rules]
    job = repository.enqueue(PlaygroundJob.of("bundled", "Why?", 7, asked, "ann"))
    task = add_prompt(repository, "my-prompts", "Why?", None, "ann")
    link = {"settings": job, "task": "my-prompts"}
    values = prefilled(repository, link, Person("ann", "author"))
    experiment = build_sweep({"name": "", "batch": 1} | values, partial(find_task, repository=repository))
    assert {decoding.label for decoding in experiment.decodings} == {decoding.label for decoding in asked}
    assert (experiment.seeds, experiment.task, experiment.limit) == ((7,), task.full_name, 1)
    assert {decoding.max_new_tokens for decoding in experiment.decodings} == {40}
    for other in (Person("bob", "admin"), Person("nobody", "viewer", known=False)):
        with pytest.raises(UnknownName):
            prefilled(repository, link, other)


def test_settings_are_measured_again_on_more_prompts(repository: Repository) -> None:
    runs = repository.experiment(repository.create_experiment(sweep("Again"), enqueue=False)).runs
    ids = ",".join(run.id for run in (runs[0], runs[2], runs[4]))
    values = prefilled(repository, {"again": ids, "limit": "150"})
    asked = build_sweep({"name": "", "max_new_tokens": 128, "strict_first": 0} | values)
    assert [*asked.decodings] == [run.decoding for run in (runs[0], runs[2], runs[4])]
    assert (asked.limit, asked.task, asked.pair) == (150, "arithmetic", "bundled")
    size = find_task("arithmetic", repository).size
    assert prefilled(repository, {"again": ids, "limit": "999999"})["limit"] == size
    assert prefilled(repository, {"again": ids, "limit": "many"})["limit"] == 24
    assert prefilled(repository, {"again": "f" * 32, "limit": "9"}) == {}
