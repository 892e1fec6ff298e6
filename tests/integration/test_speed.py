"""Rounds are timed against the memory, and loads against the clock."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
import torch
from transformers import LlamaConfig

from fsd_core.config import ChainTopology, DecodingConfig, SettingConfig, Synthetic
from fsd_core.errors import ModelUnavailable, NotApplicable
from fsd_core.evaluation import speed
from fsd_core.evaluation.speed import (
    ASSISTED,
    EXACT_KINDS,
    GENERATE,
    bytes_read,
    measure,
    measure_rounds,
    read_bandwidth,
)
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import LoadedPair
from fsd_core.testing import open_session, toy_model, toy_pair

PROMPTS = ["Ava has 3 eggs and", "Ben buys four", "Question:"]


@pytest.fixture(scope="module")
def pair() -> LoadedPair:
    return toy_pair()


def test_all_contenders_are_timed_and_the_exact_ones_agree(pair: LoadedPair) -> None:
    before, done = pair.draft.module.generation_config, []
    report = measure(pair, PROMPTS, draft_length=3, threshold=0.1, max_new_tokens=20, on_prompt=done.append)

    rows = {row["name"]: row for row in report["contenders"]}
    assert set(rows) == {*EXACT_KINDS, "fsd-reducible", GENERATE}
    assert report["outputs_agree"] is True
    for name in (*EXACT_KINDS, GENERATE):
        assert rows[name]["identical"] == report["prompts"] == 3
        assert rows[name]["tokens"] == rows[GENERATE]["tokens"] <= 3 * 20
    for row in rows.values():
        assert row["tokens_per_second"] == pytest.approx(row["tokens"] / row["seconds"])
        for ratio in (row["versus_generate"], row["versus_assisted"]):
            assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
    assert rows[GENERATE]["versus_generate"]["median"] == rows[ASSISTED]["versus_assisted"]["median"] == 1
    forth, back = rows[ASSISTED]["versus_generate"]["median"], rows[GENERATE]["versus_assisted"]["median"]
    assert math.isclose(forth * back, 1)

    assert done == [1, 2, 3]
    assert pair.draft.module.generation_config is before
    json.dumps(report, allow_nan=False)


def test_a_loose_threshold_is_not_exact_and_the_report_says_so(pair: LoadedPair) -> None:
    report = measure(pair, PROMPTS, draft_length=3, threshold=math.log(2), max_new_tokens=20)
    rows = {row["name"]: row for row in report["contenders"]}
    assert rows["fsd-reducible"]["identical"] < 3
    assert report["outputs_agree"] is True  # only the exact ones are asked to


Call = Callable[..., tuple[int, str, str]]
SMALL = LlamaConfig(
    vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=64, max_position_embeddings=400, tie_word_embeddings=True,
)  # fmt: skip


@pytest.mark.wide
@pytest.mark.parametrize("probability", [0.0, 0.6, 1.0])
def test_the_synthetic_rule_keeps_tokens_with_its_probability(probability: float) -> None:
    pair, gamma = toy_pair(), 4
    config = DecodingConfig(
        acceptance=Synthetic(probability=probability), topology=ChainTopology(length=gamma), max_new_tokens=60
    )
    lengths = []
    for seed in range(10):
        session = open_session(pair.target, pair.draft, config, [1, 2, 3], seed, frozenset())
        while session.stop_reason is None:
            record = session.run_round()
            if len(record.drafted) == gamma:
                lengths.append(len(record.emitted))
    expected = sum(probability**i for i in range(gamma + 1))
    assert sum(lengths) / len(lengths) == pytest.approx(expected, abs=0.25 if 0 < probability < 1 else 1e-9)


def test_no_run_may_use_it() -> None:
    with pytest.raises(NotApplicable):
        SettingConfig.checked(decoding=DecodingConfig(acceptance=Synthetic()))


def test_no_command_offers_it(call: Call) -> None:
    status, _, err = call("run", "--acceptance", "synthetic")
    assert status == 2
    assert "fsd-reducible" in err


def test_what_a_forward_reads() -> None:
    untied, head = toy_model(257, seed=0), 257 * 32
    every = sum(p.numel() for p in untied.parameters())
    assert bytes_read(LanguageModel(untied)) == 4 * (every - head)
    pair = synthetic_of(SMALL)
    assert bytes_read(pair) == 4 * sum(p.numel() for p in pair.module.parameters())


def synthetic_of(config: LlamaConfig) -> LanguageModel:
    from transformers import AutoModelForCausalLM

    return LanguageModel(AutoModelForCausalLM.from_config(config))


def test_rounds_are_held_against_their_parts_and_the_memory() -> None:
    pair = toy_pair()
    report = measure_rounds(pair.target, pair.draft, draft_length=3, rounds=3)
    assert report["autoregressive_floor_ms"] == pytest.approx(
        report["target_bytes"] / report["bandwidth_gb_s"] / 1e6, rel=1e-6
    )
    assert report["speculative_floor_ms"] > report["autoregressive_floor_ms"]
    assert report["autoregressive_share_of_floor"] > 0
    assert min(report[name] for name in ("speculative_round_ms", "draft_step_ms", "round_over_its_parts")) > 0
    assert read_bandwidth(torch.device("cpu"), size=2**20) > 0


@pytest.mark.long  # it measures
def test_rounds_take_about_what_their_parts_take() -> None:
    pair = toy_pair()
    report = measure_rounds(pair.target, pair.draft, draft_length=3, rounds=15)
    assert report["autoregressive_share_of_floor"] < 1
    assert report["speculative_round_ms"] > 3 * report["draft_step_ms"]
    assert 0.8 < report["round_over_its_parts"] < 20
    assert 0.5e9 < read_bandwidth(torch.device("cpu"), size=2**26) < 5e12


@pytest.mark.wide
def test_bench_times_a_synthetic_pair(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(speed.RANDOM_PAIR_SHAPES, "small/small", (SMALL, SMALL))
    status, out, _ = call("bench", "--synthetic", "small/small", "--draft-length", "2")
    assert status == 0
    assert "Round, SD" in out
    status, out, _ = call("bench", "--synthetic", "small/small", "--probability", "1", "--json")
    assert (status, '"probability": 1.0' in out) == (0, True)
    status, out, err = call("bench", "--synthetic", "huge")
    assert (status, out) == (2, "")
    assert "expected one of llama-8b/1b" in err


def test_a_synthetic_pair_that_does_not_fit_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsd_core.evaluation.speed.free_bytes", lambda device: 10**10)
    with pytest.raises(ModelUnavailable, match=r"37\.1"):
        speed.synthetic_pair("llama-8b/1b", torch.device("cpu"), torch.bfloat16)
