"""The experiment form: what a link puts into it, what it makes of its fields, and how it refuses."""

from __future__ import annotations

import re
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.experiments.experiment_form import build_sweep, parse_seeds, prefilled, size_line
from dashboard.ui.fields import BEAM_RULES, PLAIN_RULES, SEVERAL, TUNED
from fsd_core.config import (
    RULES,
    Autoregressive,
    DecodingConfig,
    FuzzyReducible,
    RunConfig,
    SamplingConfig,
    Speculative,
)
from fsd_core.config.options import OPTIONS
from fsd_core.errors import FsdError, IncompatibleOptions, InvalidSetting, UnknownName
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.roles import Person
from fsd_core.rules import Served
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.repository import Repository
from fsd_core.tasks.custom.custom_task import add_prompt, find_task
from tests.tools.plausible import new_repository, sweep

FORM = {
    **{name: option.default for name, option in OPTIONS.items()},
    "baselines": ["autoregressive", "speculative"], "tuned": ["fsd-reducible"], "several": [], "divergence": ["js"],
    "threshold": "0.05, 0.1, 0.2", "drafter": ["draft-model"], "topology": ["chain"], "seeds": "0", "name": "",
    "draft_length": "5",
}  # fmt: skip


def replace(form: dict[str, Any], **changed: Any) -> dict[str, Any]:
    assert changed.keys() <= form.keys()
    return {**form, **changed}


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "2147483648", "9" * 5000, ",".join(map(str, range(21)))])
def test_seeds_that_cannot_be_used_are_refused(text):
    with pytest.raises(InvalidSetting, match="expected"):
        parse_seeds(text)


def test_baselines_come_first_and_every_rule_meets_every_divergence_and_threshold():
    form = replace(FORM, tuned=["fsd-reducible", "fsd"], divergence=["js", "tv"], seeds="0, 1")
    sweep = build_sweep(form)
    kinds = [decoding.acceptance.kind for decoding in sweep.decodings]
    assert kinds == ["autoregressive", "speculative"] + ["fsd-reducible"] * 6 + ["fsd"] * 6
    assert len(sweep.runs()) == 28
    assert size_line(sweep) == "14 settings × 2 seeds × 50 prompts = 1,400 generations"


def test_request_rates_are_of_engines_alone_and_the_batch_size_is_how_many_may_be_open():
    engines = {name: Served(engine="vllm", endpoint=name, url="http://host:8000", model="m") for name in ("a", "b")}

    def named(name: str) -> Any:
        return SimpleNamespace(served=engines[name])

    def swept(rates: str, batch: str = "1", **changed: Any):
        form = FORM | {"baselines": [], "tuned": [], "endpoints": ["a", "b"], "rates": rates, "batch": batch} | changed
        return build_sweep(form, find_engine=named)

    sweep = swept("0.5, 2, 0.5")
    assert [(run.rate, run.batch, run.setting.decoding.label) for run in sweep.runs()] == [
        (rate, 64, f"Served · vLLM {name}") for rate in (0.5, 2.0) for name in ("a", "b")
    ]
    assert size_line(sweep) == "2 settings × 2 loads × 1 seed × 50 prompts = 200 generations"
    assert {run.batch for run in swept("2", "8").runs()} == {8}
    assert swept("").runs() == swept(" ").runs()
    assert swept("").runs()[0].as_json().keys() == RunConfig().as_json().keys()  # stored runs keep their hashes
    for rates, batch, more, told in (
        ("x", "1", {}, "The request rates 'x' cannot be read: expected numbers, such as 0.5, 1, 2."),
        ("0", "1", {}, "expected more than 0"),
        ("nan", "1", {}, "expected"),
        ("inf", "1", {}, "expected at most 1000"),
        ("1", "2, 4", {}, "the batch size is how many may be open at once: give one"),
        ("1", "1", {"baselines": ["speculative"]}, "Prompts arrive at a rate at running engines alone, and 'SD · γ 5'"),
    ):
        with pytest.raises(InvalidSetting, match=re.escape(told)):
            swept(rates, batch, **more)
    with pytest.raises(IncompatibleOptions, match="several are open at once"):
        RunConfig.checked(setting=sweep.runs()[0].setting, rate=2.0)


def test_every_rule_meets_every_draft_length_and_the_target_alone_none():
    sweep = build_sweep(replace(FORM, draft_length="5, 16, 5", threshold="0.1"))
    assert [d.label for d in sweep.decodings] == [
        "Target alone", "SD · γ 5", "SD · γ 16", "FSD reducible · js ≤ 0.1 · γ 5", "FSD reducible · js ≤ 0.1 · γ 16",
    ]  # fmt: skip


def test_the_official_rule_has_a_divergence_of_its_own_and_no_off():
    sweep = build_sweep(replace(FORM, baselines=[], tuned=["fsd-official"], divergence=[], threshold="0.2, 0.4"))
    assert [d.label for d in sweep.decodings] == [
        f"FSD official · ag ≤ {threshold} · target sampled · γ 5" for threshold in (0.2, 0.4)
    ]
    with pytest.raises(IncompatibleOptions, match="fsd-official"):
        build_sweep(replace(FORM, baselines=[], tuned=["fsd-official"], threshold="off, 0.4"))
    both = build_sweep(replace(FORM, baselines=[], tuned=["fsd", "fsd-official"], threshold="off, 0.4"))
    assert [(d.acceptance.kind, d.threshold) for d in both.decodings] == [
        ("fsd", None), ("fsd", 0.4), ("fsd-official", 0.4)
    ]  # fmt: skip


def test_every_rule_can_be_part_of_an_experiment():
    several = (*SEVERAL, *BEAM_RULES)
    sampled = replace(
        FORM, baselines=PLAIN_RULES, tuned=TUNED, several=several, drafts=4, threshold="0.1", temperature=1
    )
    sweep = build_sweep(sampled)
    assert {decoding.acceptance.kind for decoding in sweep.decodings} == set(RULES)
    assert {decoding.topology.drafts for decoding in sweep.decodings if decoding.acceptance.kind in SEVERAL} == {2, 4}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"threshold": "0.9"}, "beyond the range of the divergence 'js'"),
        ({"threshold": "-0.1"}, "cannot be used"),
        ({"divergence": []}, "No divergence is chosen"),
        ({"tuned": [], "baselines": []}, "Nothing is chosen"),
        ({"limit": None}, "Prompts is empty: expected a whole number."),
        ({"limit": 100_000}, "has 600 prompts: expected “Prompts” from 1 to 600."),
        ({"draft_length": "2.5"}, "whole number"),
        (
            {"draft_length": ""},
            "The draft lengths γ '' cannot be read: expected whole numbers of at least 0, such as 5, 16",
        ),
        ({"draft_length": "5, 99"}, "Draft length γ is 99: expected at most 32."),
        ({"top_p": 0}, "Top-p is 0.0: expected more than 0."),
        ({"drafter": ["prompt-lookup"], "divergence": ["reverse-kl"]}, "copied token"),
        ({"drafter": []}, "No drafter is chosen"),
        ({"topology": []}, "No topology is chosen"),
        ({"topology": ["dynamic-tree"], "tree_tokens": 1}, "Tree tokens is 1: expected at least 2"),
        ({"topology": ["dynamic-tree"], "tree_tokens": None}, "Tree tokens is empty"),
        ({"drafter": ["eagle"], "pair": "smollm2-1.7b"}, "this pair has none"),
        ({"seeds": ",".join(map(str, range(20))), "threshold": "0:0.5:20"}, "at most 200"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_sentence(change, sentence):
    with pytest.raises(FsdError, match=sentence):
        build_sweep(replace(FORM, **change))


def test_drafts_that_end_in_several_ways_are_settings_of_their_own() -> None:
    form = replace(FORM, baselines=[], threshold="0.1", topology=["chain", "dynamic-tree"])
    sweep = build_sweep(replace(form, length_by=["fixed", "chain"], least_probability=0.3, draft_cost=None))
    assert [decoding.label.removeprefix("FSD reducible · js ≤ 0.1 · ") for decoding in sweep.decodings] == [
        "γ 5", "length by chain ≥ 0.3 · γ 5", "tree 24 · γ 5",
    ]  # fmt: skip


def test_every_drafter_meets_every_shape_that_a_rule_can_judge() -> None:
    sweep = build_sweep(
        replace(
            FORM,
            tuned=["fsd"],
            several=["k-seq"],
            baselines=["speculative"],
            threshold="0.1",
            drafter=["draft-model", "eagle"],
            topology=["chain", "dynamic-tree"],
        )
    )
    shapes = [(d.acceptance.kind, d.drafter.kind, d.topology.kind) for d in sweep.decodings]
    assert len(shapes) == len(set(shapes)) == 2 * 2 + 2 + 2 * 2
    assert {kind for rule, _, kind in shapes if rule == "k-seq"} == {"multi-draft"}


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
    others = {name: spec for name, spec in MODEL_PAIRS.items() if name != "bundled"}
    monkeypatch.setattr("fsd_core.models.model_pairs.MODEL_PAIRS", others)
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
