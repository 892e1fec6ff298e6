from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from fsd_core.cli_options import DRAFTERS, RULES, build_decoding, read_prompt, split_thresholds
from fsd_core.config import ACCEPTANCES, DecodingConfig
from fsd_core.errors import InvalidSetting


def decoding(**given: Any) -> DecodingConfig:
    nothing: dict[str, Any] = {"divergence": None, "threshold": None, "drafter": None, "draft_length": None}
    sampling = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "max_new_tokens": 128}
    return build_decoding(**{"acceptance": "fsd-reducible", **nothing, **sampling, **given})


def test_every_rule_and_drafter_of_the_configuration_can_be_asked_for() -> None:
    assert tuple(RULES) == ACCEPTANCES
    assert set(DRAFTERS) == {"draft-model", "prompt-lookup"}
    for name in ACCEPTANCES:
        assert decoding(acceptance=name).acceptance.kind == name


def test_no_options_are_the_configuration_s_own_defaults() -> None:
    assert decoding() == DecodingConfig()


def test_options_reach_their_place() -> None:
    config = decoding(
        acceptance="fsd", divergence="tv", threshold="0.25", drafter="prompt-lookup", draft_length=3,
        temperature=0.7, top_p=0.9, top_k=40, max_new_tokens=9,
    )  # fmt: skip
    assert (config.acceptance.kind, config.divergence, config.threshold) == ("fsd", "tv", 0.25)
    assert config.drafter is not None
    assert config.drafter.kind == "prompt-lookup"
    assert config.topology is not None
    assert config.topology.length == 3
    assert config.sampling.model_dump() == {"temperature": 0.7, "top_p": 0.9, "top_k": 40}
    assert config.max_new_tokens == 9


def test_off_is_no_threshold() -> None:
    assert decoding(threshold="off").threshold is None
    assert decoding(threshold="OFF").threshold is None
    with pytest.raises(InvalidSetting, match="cannot be off"):
        decoding(acceptance="fsd-official", threshold="off")


@pytest.mark.parametrize("threshold", ["-0.1", "nan", "0.7", "inf", "much", ""])
def test_thresholds_that_cannot_be(threshold: str) -> None:
    with pytest.raises(InvalidSetting, match="threshold"):
        decoding(threshold=threshold)


def test_an_unbounded_divergence_takes_any_threshold() -> None:
    assert decoding(divergence="kl", threshold="1e9").threshold == 1e9
    assert decoding(divergence="kl", threshold="inf").threshold == float("inf")


@pytest.mark.parametrize(
    ("acceptance", "option", "value"),
    [
        ("speculative", "threshold", "0.1"),
        ("speculative", "divergence", "js"),
        ("autoregressive", "threshold", "off"),
        ("autoregressive", "drafter", "draft-model"),
        ("draft-only", "draft_length", 5),
        ("fsd-official", "divergence", "ag"),
    ],
)
def test_an_option_the_rule_does_not_read_is_refused(acceptance: str, option: str, value: object) -> None:
    flag = "--" + option.replace("_", "-")
    with pytest.raises(InvalidSetting, match=f"{flag} does not apply to the rule '{acceptance}'.*choose from"):
        decoding(acceptance=acceptance, **{option: value})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1", ["0.1"]),
        ("0.05, 0.1,off", ["0.05", "0.1", "off"]),
        ("0.05:0.25:5", ["0.05", "0.1", "0.15", "0.2", "0.25"]),
        ("0:1:2", ["0.0", "1.0"]),
    ],
)
def test_thresholds_as_list_and_as_range(text: str, expected: list[str]) -> None:
    assert split_thresholds(text) == expected


@pytest.mark.parametrize("text", ["1:2", "1:2:3:4", "a:b:c", "0.2:0.1:3", "0:1:1", "0:inf:3", "0:1:101", "0:1:2.5"])
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(InvalidSetting, match="start:stop:count"):
        split_thresholds(text)


def test_a_dash_reads_the_prompt_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(data: bytes) -> str:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        return read_prompt("-")

    assert typed("Häuser\nAnswer:\n".encode()) == "Häuser\nAnswer:"
    assert typed(b"a\r\n") == "a"
    with pytest.raises(InvalidSetting, match="UTF-8"):
        typed(b"\xff")


def test_a_prompt_is_taken_as_it_stands() -> None:
    assert read_prompt("[bold]--x\n") == "[bold]--x\n"
    with pytest.raises(InvalidSetting, match="UTF-8"):
        read_prompt("\udcff")  # what Python makes of a broken byte in an argument
