from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from fsd_core.cli.options import read_prompt, split_thresholds
from fsd_core.errors import InvalidSetting


def test_thresholds_are_words_again() -> None:
    assert split_thresholds("0:1:3, off", "fsd") == ["0.0", "0.5", "1.0", "off"]


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


def test_a_rule_without_threshold_is_measured_once_and_one_with_wants_some() -> None:
    assert split_thresholds(None, "k-seq") == [None]
    with pytest.raises(InvalidSetting, match="The rule 'fsd' has a threshold: give --thresholds"):
        split_thresholds(None, "fsd")
