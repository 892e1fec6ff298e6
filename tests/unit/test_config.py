"""Settings that cannot work are refused in one sentence; settings that can are addressed by their content."""

from __future__ import annotations

import math

import pytest
from pydantic import TypeAdapter

from fsd_core.config import (
    Autoregressive,
    DecodingConfig,
    Fuzzy,
    FuzzyReducible,
    PromptLookupDrafter,
    SettingConfig,
    Speculative,
    SweepConfig,
)
from fsd_core.errors import FsdError, InvalidSetting


@pytest.mark.parametrize(
    ("acceptance", "words"),
    [
        ({"kind": "fsd", "threshold": -0.1}, "cannot be used"),
        ({"kind": "fsd", "threshold": math.nan}, "cannot be used"),
        ({"kind": "fsd-reducible", "divergence": "js", "threshold": 0.7}, "beyond the range of the divergence 'js'"),
        ({"kind": "fsd-reducible", "divergence": "top-k-tv", "threshold": 1.5}, "beyond the range"),
        ({"kind": "fsd", "divergence": "random", "threshold": 2}, "beyond the range"),
        ({"kind": "fsd-official", "threshold": -1}, "cannot be used"),
        ({"kind": "nonsense"}, "fsd-reducible"),
        ({"kind": "fsd", "divergence": "euclid"}, "acceptance.fsd.divergence"),
    ],
)
def test_a_bad_rule_is_refused_in_one_sentence(acceptance, words):
    with pytest.raises(InvalidSetting, match=words) as caught:
        DecodingConfig.checked(acceptance=acceptance)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, FsdError)


@pytest.mark.parametrize("divergence", ["reverse-kl", "ag", "top-k-ag"])
def test_a_copied_token_has_no_finite_divergence_of_some_kinds(divergence):
    with pytest.raises(InvalidSetting, match="infinite against a copied token"):
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
