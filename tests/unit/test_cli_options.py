from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from fsd_core.cli.options import read_prompt, split_thresholds
from fsd_core.errors import InvalidSetting


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
    assert split_thresholds(text, "fsd") == expected


@pytest.mark.parametrize("text", ["1:2", "1:2:3:4", "a:b:c", "0.2:0.1:3", "0:1:1", "0:inf:3", "0:1:101", "0:1:2.5"])
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(InvalidSetting, match="start:stop:count"):
        split_thresholds(text, "fsd")


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
