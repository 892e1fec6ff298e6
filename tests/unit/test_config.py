"""Settings that cannot work are refused in one sentence; settings that can are addressed by their content."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import TypeAdapter

from fsd_core.config import (
    RULES,
    VERIFIERS,
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DraftOnly,
    Fuzzy,
    FuzzyOfficial,
    FuzzyReducible,
    PromptLookupDrafter,
    RunConfig,
    SamplingConfig,
    SettingConfig,
    Speculative,
    SweepConfig,
)
from fsd_core.config.options import effective_settings, method
from fsd_core.errors import FsdError, IncompatibleOptions, InvalidSetting, OutOfRange, UnknownChoice
from fsd_core.frozen import before_fields, content_hash
from fsd_core.ops.distributions import warp
from fsd_core.rules import Rule


@pytest.mark.parametrize(
    ("acceptance", "words"),
    [
        ({"kind": "fsd", "threshold": -0.1}, "cannot be used"),
        ({"kind": "fsd", "threshold": math.nan}, "cannot be used"),
        ({"kind": "fsd-reducible", "divergence": "js", "threshold": 0.7}, "beyond the range of the divergence 'js'"),
        ({"kind": "fsd-reducible", "divergence": "top-k-tv", "threshold": 1.5}, "beyond the range"),
        ({"kind": "fsd", "divergence": "random", "threshold": 2}, "beyond the range"),
        ({"kind": "fsd-official", "threshold": -1}, "cannot be used"),
        ({"threshold": 0.3}, "^Kind: field required"),
        ({"kind": ["fsd"]}, "^Kind is "),
        ({"kind": "fsd", "divergence": "euclid"}, "^Divergence is 'euclid': expected "),
    ],
)
def test_a_bad_rule_is_refused_in_one_sentence(acceptance, words):
    with pytest.raises(InvalidSetting, match=words) as caught:
        DecodingConfig.checked(acceptance=acceptance)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, FsdError)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"limit": 0}, "Limit is 0: expected at least 1."),
        ({"seed": 2**31}, "Seed is 2147483648: expected less than 2147483648."),
        ({"dtype": "int8"}, "Dtype is 'int8': expected 'auto', 'float32', 'bfloat16' or 'float16'."),
        ({"limit": "many"}, "Limit is 'many': expected a whole number."),
        ({"colour": "red"}, "Colour: extra inputs are not permitted, got 'red'."),
    ],
)
def test_a_value_out_of_range_is_told_with_its_name_and_what_was_expected(values, told):
    with pytest.raises(InvalidSetting) as caught:
        RunConfig.checked(**values)
    assert str(caught.value) == told


@pytest.mark.parametrize("divergence", ["reverse-kl", "ag", "top-k-ag"])
def test_a_copied_token_has_no_finite_divergence_of_some_kinds(divergence):
    with pytest.raises(IncompatibleOptions, match="infinite for a copied token"):
        DecodingConfig.checked(acceptance=Fuzzy(divergence=divergence), drafter=PromptLookupDrafter())


def test_baselines_draft_nothing():
    config = DecodingConfig(acceptance=Autoregressive())
    assert config.drafter is None
    assert config.topology is None
    assert DecodingConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("threshold", [None, 0.0, 0.3, math.inf])
def test_settings_survive_json_and_keep_their_address(threshold):
    setting = SettingConfig(decoding=DecodingConfig(acceptance=Fuzzy(divergence="kl", threshold=threshold)))
    again = TypeAdapter(SettingConfig).validate_json(setting.model_dump_json())
    assert again == setting
    assert again.id == setting.id


def test_different_settings_have_different_addresses():
    thresholds = [None, 0.0, 0.1, 0.2]
    ids = {SettingConfig(decoding=DecodingConfig(acceptance=FuzzyReducible(threshold=t))).id for t in thresholds}
    assert len(ids) == len(thresholds)


def test_a_sweep_does_each_run_once_and_a_seed_at_a_time():
    decodings = (DecodingConfig(acceptance=Speculative()), DecodingConfig(), DecodingConfig())
    runs = SweepConfig(decodings=decodings, seeds=(0, 1)).runs()
    assert [(r.seed, r.setting.decoding.acceptance.kind) for r in runs] == [
        (0, "speculative"),
        (0, "fsd-reducible"),
        (1, "speculative"),
        (1, "fsd-reducible"),
    ]


def test_what_is_known_of_each_rule():
    drafting = {kind for kind, rule in RULES.items() if not rule.baseline}
    single = (
        "speculative block fsd-reducible fsd fsd-head fsd-official ensemble mentored lenience cascade head head-strict "
        "cactus ears threshold-accept typical top-n-delta margin lookahead"
    )
    assert drafting == {*VERIFIERS, "dsbd"} | {*single.split(" ")}
    assert {*RULES} - drafting == {"autoregressive", "draft-only", "beam-sampling"}
    lossless = {kind for kind, rule in RULES.items() if rule.lossless}
    assert lossless == {"autoregressive", "speculative", "block", *VERIFIERS}
    assert len({rule.title for rule in RULES.values()}) == len(RULES)


def test_a_rule_of_a_package_that_is_gone_is_read_and_written_as_it_was_and_judges_nothing():
    stored = {"decoding": {"acceptance": {"kind": "mixture", "weight": 0.3, "sort": "a"}}}
    setting = SettingConfig.model_validate(stored)
    assert setting.as_json()["decoding"]["acceptance"] == stored["decoding"]["acceptance"]
    assert setting.decoding.label == "Missing rule · mixture · γ 5"
    with pytest.raises(UnknownChoice, match="mixture"):
        setting.decoding.acceptance.judge(None, None, None)


def test_a_temperature_that_logits_cannot_be_divided_by_is_refused() -> None:
    for low in (1e-40, 5e-324, 9e-21):
        with pytest.raises(OutOfRange):
            SamplingConfig.checked(temperature=low)
    logits = torch.tensor([[3.0, 1.0, -1e4]])
    assert warp(logits, SamplingConfig(temperature=1e-20)).tolist() == [[1, 0, 0]]


LOOKUP, SHORT = PromptLookupDrafter(), ChainTopology(length=3)


@pytest.mark.parametrize(
    ("decoding", "label"),
    [
        (DecodingConfig(), "FSD reducible · js ≤ 0.1 · γ 5"),
        (DecodingConfig(acceptance=Autoregressive()), "Target alone"),
        (DecodingConfig(acceptance=DraftOnly()), "Draft alone"),
        (DecodingConfig(acceptance=Speculative(), topology=SHORT), "SD · γ 3"),
        (DecodingConfig(acceptance=Fuzzy(judge_bonus=True, threshold=None)), "FSD · js off · γ 5"),
        (DecodingConfig(acceptance=FuzzyOfficial(sample_target=False)), "FSD official · ag ≤ 0.4 · γ 5"),
        (DecodingConfig(acceptance=Speculative(), drafter=LOOKUP), "SD · prompt lookup · γ 5"),
        (DecodingConfig(sampling=SamplingConfig(temperature=0.7)), "FSD reducible · js ≤ 0.1 · γ 5 · t 0.7"),
    ],
)
def test_labels_of_default_parameters_stay_as_they_are_stored(decoding, label):
    assert decoding.label == label


@pytest.mark.parametrize(
    ("published", "before"),
    [(Fuzzy(), Fuzzy(judge_bonus=True)), (FuzzyOfficial(), FuzzyOfficial(sample_target=False))],
)
def test_what_was_stored_before_a_rule_did_as_published_says_what_it_did(published: Rule, before: Rule) -> None:
    (name,) = before_fields(type(published))
    stored, new = (DecodingConfig(acceptance=rule) for rule in (before, published))
    assert name not in stored.as_json()["acceptance"]
    assert new.as_json()["acceptance"][name] == getattr(published, name)
    assert content_hash(stored) != content_hash(new)
    for decoding in (stored, new):
        assert DecodingConfig.model_validate(decoding.as_json()) == decoding
        key = f"setting.decoding.acceptance.{name}"
        run = RunConfig(setting=SettingConfig(decoding=decoding), limit=1)
        assert effective_settings(run)[key] == getattr(decoding.acceptance, name)
    assert method({"acceptance": published.kind}).acceptance == published


@pytest.mark.parametrize(
    ("parts", "label"),
    [
        ({"acceptance": FuzzyReducible(guard=False)}, "FSD reducible · js ≤ 0.1 · no guard · γ 5"),
        (
            {"acceptance": FuzzyReducible(divergence="top-k-js", divergence_top_k=20)},
            "FSD reducible · top-20-js ≤ 0.1 · γ 5",
        ),
        ({"acceptance": FuzzyReducible(divergence_top_k=20)}, "FSD reducible · js ≤ 0.1 · γ 5"),  # js does not read it
        ({"acceptance": Fuzzy()}, "FSD · js ≤ 0.1 · target's bonus · γ 5"),
        ({"acceptance": FuzzyOfficial()}, "FSD official · ag ≤ 0.4 · target sampled · γ 5"),
        (
            {"acceptance": Speculative(), "drafter": PromptLookupDrafter(max_ngram=5)},
            "SD · prompt lookup 5-gram · γ 5",
        ),
        (
            {"acceptance": Speculative(), "sampling": SamplingConfig(temperature=1.0, top_k=10, top_p=0.9, min_p=0.2)},
            "SD · γ 5 · t 1 · top-k 10 · top-p 0.9 · min-p 0.2",
        ),
        ({"acceptance": Speculative(), "sampling": SamplingConfig(top_p=0.9)}, "SD · γ 5"),  # greedy reads none of it
    ],
)
def test_labels_name_other_parameters_where_they_are_not_the_default(parts, label):
    assert DecodingConfig(**parts).label == label


def test_a_family_is_named_without_one_threshold():
    assert DecodingConfig().family("0.05 to 0.6") == "FSD reducible · js 0.05 to 0.6"
    assert DecodingConfig(topology=SHORT).family("0.1, off") == "FSD reducible · js 0.1, off · γ 3"
    assert DecodingConfig(acceptance=Autoregressive()).family("") == "Target alone"


def test_prompt_lookup_writes_one_text_at_a_time() -> None:
    lookup = DecodingConfig(acceptance=Speculative(), drafter=PromptLookupDrafter())
    setting = SettingConfig(decoding=lookup)
    assert RunConfig.checked(setting=setting, batch=1).batch == 1
    for config, fields in ((RunConfig, {"setting": setting}), (SweepConfig, {"decodings": (lookup,)})):
        with pytest.raises(IncompatibleOptions, match="one text at a time, and the batch size is 4"):
            config.checked(**fields, batch=4)
