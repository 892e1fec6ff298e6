from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from fsd_core.cli.common import read_prompt
from fsd_core.errors import Unreadable


def test_a_dash_reads_the_prompt_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(data: bytes) -> str:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        return read_prompt("-")

    assert typed("Häuser\nAnswer:\n".encode()) == "Häuser\nAnswer:"
    assert typed(b"a\r\n") == "a"
    assert typed(b"\xef\xbb\xbfa\n") == "a"  # with the mark that some editors put first
    with pytest.raises(Unreadable):
        typed(b"\xff")


def test_a_prompt_is_taken_as_it_stands() -> None:
    assert read_prompt("[bold]--x\n") == "[bold]--x\n"
    with pytest.raises(Unreadable):
        read_prompt("\udcff")  # what Python makes of a broken byte in an argument
