"""Bounds of a run's own distributions: what is computed, where it is kept, and who refuses what."""

from __future__ import annotations

import pytest
import torch

from fsd_core.config import DecodingConfig, RunConfig, SamplingConfig, SettingConfig, Speculative
from fsd_core.errors import InvalidSetting, UnknownName
from fsd_core.evaluation import bounds
from fsd_core.evaluation.runner import RunObserver, execute_runs
from fsd_core.models.loading import load_pair
from fsd_core.models.prompt import encode_prompt
from fsd_core.rules.rates import acceptance_rate
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.theory import optimal_acceptance


@pytest.fixture
def repository(tmp_path) -> Repository:
    url = f"sqlite:///{tmp_path}/fsd.db"
    upgrade(url)
    return Repository(open_database(url))


@pytest.fixture(scope="module")
def pair():
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
def test_they_are_those_of_the_distributions_where_the_run_has_been(repository, pair):
    """All positions of two texts against the models asked token by token."""
    id = _run(repository, pair, temperature=1.0)
    tokens = repository.run(id).metrics["tokens"]
    told = []
    found = bounds.measure(repository, id, pair, positions=tokens, on_position=lambda *at: told.append(at))
    assert (found["positions"], found["temperature"]) == (tokens, 1.0)
    assert told[-1] == (tokens, tokens)
    expected = {"optimum": 0.0, "rrs": 0.0, "without": 0.0}
    traces = dict(repository.traces(id))
    for generation in repository.generations(id):
        text = encode_prompt(pair.tokenizer, generation.prompt)
        for token in (token for record in traces[generation.position] for token in record.emitted):
            with torch.inference_mode():
                logits = [
                    model.forward(torch.tensor([text]), model.new_cache(len(text)), logits_to_keep=1)[0, 0]
                    for model in (pair.target, pair.draft)
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
    assert repository.run(id).metrics["bounds"] == [found]
    for name, rows in found["verifiers"].items():  # no verifier beats the optimum of its drafts
        own = found["optima"][bounds.VERIFIERS[name].sampling]
        assert all(row["rate"] <= own[row["drafts"] - 1]["rate"] + 1e-9 for row in rows)


@pytest.mark.wide
def test_each_temperature_is_kept_once_and_a_greedy_run_is_asked_at_1(repository, pair):
    id = _run(repository, pair, temperature=0.0)
    assert bounds.measure(repository, id, pair, positions=1)["temperature"] == 1.0
    bounds.measure(repository, id, pair, temperature=0.5, positions=1)
    again = bounds.measure(repository, id, pair, temperature=1.0, positions=2)
    kept = repository.run(id).metrics["bounds"]
    assert [one["temperature"] for one in kept] == [0.5, 1.0]
    assert kept[1] == again
    assert repository.run(id).metrics["accuracy"] is not None


def test_what_cannot_be_measured_is_refused(repository, pair):
    waiting = repository.create_run(RunConfig(limit=1))
    with pytest.raises(InvalidSetting, match="no finished texts"):
        bounds.measure(repository, waiting, pair)
    with pytest.raises(UnknownName):
        bounds.check(repository, "nobody")
    ended = _run(repository, pair, temperature=0.0)
    with pytest.raises(InvalidSetting, match="expected more than 0"):
        bounds.measure(repository, ended, pair, temperature=0.0)
