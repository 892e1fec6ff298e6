"""What a running engine is told, and how its settings are stored and built."""

from __future__ import annotations

import pytest

from fsd_core.calibration.request import build_calibration
from fsd_core.config import SettingConfig
from fsd_core.config.calibration_config import CalibrationConfig, engine_candidates, read_sweep
from fsd_core.config.decoding_config import DecodingConfig
from fsd_core.config.options import method
from fsd_core.config.vllm_plugin import served_rule, told_options
from fsd_core.engines.client import filled, template_words
from fsd_core.errors import InvalidSetting, NoEquivalent, NotCalibratable, UnfitEngine
from fsd_core.review.delivery import deliver
from fsd_core.rules import Autoregressive, FuzzyReducible, Lenience, Served, Speculative, ThresholdAccept
from fsd_core.tasks import get_task

PLAIN = Served(engine="vllm", endpoint="mine", url="http://host:8000", model="m")
TOLD = PLAIN.model_copy(update={"rule": FuzzyReducible(threshold=0.2)})


def test_an_endpoint_that_is_told_nothing_is_stored_as_before_and_a_rule_reads_back() -> None:
    assert set(PLAIN.as_json()) == {"kind", "engine", "endpoint", "url", "model"}
    decoding = DecodingConfig(acceptance=TOLD)
    assert DecodingConfig.model_validate(decoding.as_json()) == decoding
    assert decoding.label == "Served · vLLM mine · FSD reducible · js ≤ 0.2"
    assert (decoding.threshold, TOLD.engine_alone) == (0.2, PLAIN)
    assert not TOLD.is_exact
    assert TOLD.model_copy(update={"rule": Speculative()}).is_exact
    with pytest.raises(UnfitEngine, match="autoregressive"):
        Served.checked(**dict(PLAIN) | {"rule": Autoregressive()})


def test_what_an_engine_is_told_is_what_the_plug_in_reads() -> None:
    for rule in (FuzzyReducible(threshold=0.2), FuzzyReducible(threshold=None), Lenience(lenience=0.3)):
        assert served_rule(told_options(rule)) == rule
    assert served_rule(told_options(Speculative())) is None


def test_a_value_stays_inside_of_its_word() -> None:
    words = template_words("""env A={knob} serve --x '{"fsd_lab": {rule}, "é": "{0} {kind}"}' '; rm -rf $HOME'""")
    strict, loose = FuzzyReducible(threshold=None), FuzzyReducible(threshold=0.2)
    told = filled(words, loose, strict)
    assert told[:3] == ["env", "A=0.2", "serve"]
    assert told[4].startswith('{"fsd_lab": {"kind": "fsd-reducible", "divergence": "js", "threshold": 0.2')
    assert told[4].endswith('}, "é": "{0} fsd-reducible"}')
    assert told[5] == "; rm -rf $HOME"
    assert filled(words, Speculative(), strict)[1] == "A=off"
    assert '{"fsd_lab": {"kind": "off"}' in filled(words, Speculative(), strict)[4]
    assert filled(["{knob}"], Speculative(), ThresholdAccept(threshold_acc=1.0)) == ["1"]


def built(**options: object) -> CalibrationConfig:
    return build_calibration(get_task("arithmetic"), [options], endpoint=PLAIN)


def test_a_calibration_of_an_endpoint_has_its_rules_and_one_strict_setting() -> None:
    config = built(acceptance=["fsd-reducible", "margin"], threshold=[None, 0.1], logit_ratio=[0.9], temperature=1.0)
    rules = [one.acceptance.rule for one in config.decodings if isinstance(one.acceptance, Served)]
    assert [rule.kind for rule in rules if rule] == ["speculative", "fsd-reducible", "fsd-reducible", "margin"]
    assert (config.endpoint, config.lengths) == (PLAIN, ())
    assert config.target == config.decodings[0]
    assert all(one.sampling.temperature == 1 and one.drafter is None for one in config.decodings)
    assert read_sweep(config.as_json()) == config
    assert len(built().decodings) == 1 + len(FuzzyReducible.knob.grid)  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draft_length": 4}, "draft_length does not apply to an endpoint, which was started with its own drafts"),
        ({"drafter": "prompt-lookup"}, "drafter does not apply to an endpoint"),
        ({"strict_first": 2}, "strict_first does not apply to an endpoint"),
        ({"acceptance": "k-seq"}, "judges several drafts, and an endpoint is told of one"),
        ({"acceptance": "autoregressive"}, "drafts nothing, so a calibration cannot choose it"),
    ],
)
def test_options_of_our_own_loop_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        built(**options)


def test_two_engines_or_no_strict_setting_are_no_calibration() -> None:
    settings = engine_candidates(PLAIN, [method({"acceptance": "fsd-reducible"})])
    other = engine_candidates(PLAIN.model_copy(update={"url": "http://other"}), settings[:0] or [method({})])
    for decodings, message in (
        (settings[1:], "one strict setting"),
        ((*settings, *other), "tells one engine, and nothing else"),
        ((*settings, method({})), "tells one engine, and nothing else"),
    ):
        with pytest.raises(NotCalibratable, match=message):
            CalibrationConfig.checked(decodings=tuple(decodings), limit=400)


def test_a_setting_of_an_endpoint_leaves_as_arguments_or_says_why_it_cannot() -> None:
    setting = SettingConfig(decoding=DecodingConfig(acceptance=TOLD))
    assert """--additional-config '{"fsd_lab": {"kind": "fsd-reducible",""" in deliver(setting, "vllm")
    assert '"endpoint": "mine"' in deliver(setting, "json")
    plain = SettingConfig(decoding=DecodingConfig(acceptance=PLAIN))
    with pytest.raises(NoEquivalent):
        deliver(plain, "vllm")
    for form in ("python", "sglang"):
        with pytest.raises(NoEquivalent):
            deliver(setting, form)
