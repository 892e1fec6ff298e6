"""What a running engine is asked and told, at which moments, and through which proxies."""

from __future__ import annotations

import asyncio
import itertools
import selectors
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from math import exp, sqrt
from statistics import fmean
from typing import Any

import pytest

from fsd_core.calibration.request import build_calibration
from fsd_core.config import SettingConfig
from fsd_core.config.calibration_config import CalibrationConfig, engine_candidates, read_sweep
from fsd_core.config.decoding_config import DecodingConfig
from fsd_core.config.options import method
from fsd_core.config.vllm_plugin import served_rule, told_options
from fsd_core.engines.client import EngineClient, arriving, filled, poisson_arrivals, template_words
from fsd_core.errors import InvalidSetting, Misconfigured, NoEquivalent, NotCalibratable, UnfitEngine
from fsd_core.review.delivery import deliver
from fsd_core.rules import Autoregressive, FuzzyReducible, Lenience, Served, Speculative, ThresholdAccept
from fsd_core.tasks import get_task


class Jumping(selectors.DefaultSelector):
    """Waits for nothing: what would have been waited has passed."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end on a clock that jumps."""

    def jumping() -> None:
        clock = Jumping()
        loop = asyncio.SelectorEventLoop(clock)
        loop.time = lambda: clock.now
        loop._clock_resolution = 1e-12  # pyright: ignore[reportAttributeAccessIssue]
        try:
            loop.run_until_complete(work)
        finally:
            loop.close()

    with ThreadPoolExecutor(1) as pool:  # this thread may have a loop of its own, as that of a browser
        pool.submit(jumping).result()


class Engine:
    """Takes so long for each prompt, and notes when each was asked, and how many were open."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.open, self.most = seconds, 0, 0
        self.asked: list[tuple[str, float, float, bool]] = []

    async def ask(self, prompt: str, waited: float, held: bool) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        self.asked.append((prompt, asyncio.get_running_loop().time(), waited, held))
        await asyncio.sleep(self.seconds)
        self.open -= 1


def test_arrivals_are_poisson_and_the_seed_s() -> None:
    arrivals = poisson_arrivals(4001, 8.0, 3)
    gaps = [later - earlier for earlier, later in itertools.pairwise(arrivals)]
    assert arrivals[0] == 0
    assert fmean(gaps) == pytest.approx(1 / 8, rel=4 / sqrt(4000))  # four standard errors
    for times in (0.5, 1.0, 2.0):  # exponential: the share of longer gaps is exp(-times)
        share = fmean(gap > times / 8 for gap in gaps)
        assert share == pytest.approx(exp(-times), abs=4 * sqrt(exp(-times) / 4000))
    assert fmean(a * b for a, b in itertools.pairwise(gaps)) == pytest.approx(1 / 64, rel=0.15)  # independent
    assert poisson_arrivals(4001, 8.0, 3) == arrivals != poisson_arrivals(4001, 8.0, 4)
    twice = poisson_arrivals(4001, 16.0, 3)
    assert twice == pytest.approx([at / 2 for at in arrivals])  # the same bunches, faster
    assert poisson_arrivals(0, 2.0, 1) == []
    assert poisson_arrivals(1, 2.0, 1) == [0.0]


def test_each_prompt_is_asked_when_it_arrives_whatever_is_open() -> None:
    engine = Engine(10.0)
    run(arriving(zip((0.0, 0.5, 0.5, 2.0), "abcd", strict=True), 8, engine.ask))
    assert [(prompt, at, held) for prompt, at, _, held in engine.asked] == [
        ("a", 0.0, False), ("b", 0.5, False), ("c", 0.5, False), ("d", 2.0, False)
    ]  # fmt: skip
    assert [waited for *_, waited, _ in engine.asked] == pytest.approx([0.0] * 4, abs=1e-9)
    assert engine.most == 4


def test_at_most_so_many_are_open_and_who_is_held_back_counts_from_the_arrival() -> None:
    engine = Engine(3.0)
    run(arriving(zip((0.0, 1.0, 2.0, 2.5, 20.0), "abcde", strict=True), 2, engine.ask))
    assert engine.most == 2
    prompts, times, waited, held = zip(*engine.asked, strict=True)
    assert prompts == tuple("abcde")
    assert times == pytest.approx((0.0, 1.0, 3.0, 4.0, 20.0))  # c when a ends, d when b does, and e as it arrives
    assert waited == pytest.approx((0.0, 0.0, 1.0, 1.5, 0.0))
    assert held == (False, False, True, True, False)


def test_an_engine_that_fails_ends_what_is_open() -> None:
    async def broken(prompt: str, *_: object) -> None:
        await asyncio.sleep(1.0)
        raise ConnectionError(prompt)

    with pytest.raises(ExceptionGroup) as ended:
        run(arriving(zip((0.0, 50.0), "ab", strict=True), 2, broken))
    assert [str(error) for error in ended.value.exceptions] == ["a"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [("ALL_PROXY", "socks5://127.0.0.1:1"), ("NO_PROXY", "::1/128"), ("SSL_CERT_FILE", "/gone.pem")],
)
def test_it_is_told_which_variables_to_correct(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(Misconfigured, match=variable):
        EngineClient(Served(engine="vllm", endpoint="mine", url="https://engine.example/v1", model="toy"))


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
