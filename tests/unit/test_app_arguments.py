"""The arguments of ``python app.py``: each is a variable, and what is none is refused in a sentence."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from dashboard.server.requests import given
from fsd_core.errors import InvalidSetting

APP = Path(__file__).parents[2] / "app.py"


def test_each_argument_is_a_variable() -> None:
    assert given([]) == {}
    assert given(["--host", "::1", "--port=8000", "--home", "~/lab"]) == {
        "FSD_HOST": "::1", "FSD_PORT": "8000", "FSD_HOME": "~/lab",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--prot", "80"], r"^Unrecognized arguments: --prot 80\. `python app\.py --help` lists the arguments\.$"),
        (["--hos", "::1"], r"^Unrecognized arguments: --hos ::1\."),  # nothing is guessed
        (["serve"], r"^Unrecognized arguments: serve\."),
        (["--port"], r"^Argument --port: expected one argument\."),
        (["--port", "many"], r"^--port is 'many': expected a port from 1 to 65535\.$"),
        (["--port", "0"], "^--port is '0': expected a port"),
        (["--port", "65536"], "^--port is '65536': expected a port"),
        (["--port", "9" * 9999], "^--port is '9{40}': expected a port"),
        (["--port", "٣"], "^--port is '٣': expected a port"),
        (["--home", ""], r"^--home is empty: expected a value\."),  # and not the default home
        (["--host", " "], r"^--host is empty"),
    ],
)
def test_what_is_no_argument_is_a_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(InvalidSetting, match=sentence):
        given(arguments)


@pytest.mark.parametrize(
    ("arguments", "status", "printed"),
    [
        (["--help"], 0, "usage: python app.py [-h] [--host HOST] [--port PORT] [--home FOLDER]"),
        (["--port", "many"], 2, "error: --port is 'many': expected a port from 1 to 65535.\n"),
        (["--unknown"], 2, "error: Unrecognized arguments: --unknown. `python app.py --help` lists the arguments.\n"),
    ],
)
def test_help_and_refusals_start_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], status: int, printed: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["app.py", *arguments])
    for name in ("signal", "getsignal"):
        monkeypatch.setattr(f"signal.{name}", lambda *_: None)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(APP), None, "__main__")
    out, err = capsys.readouterr()
    assert (stop.value.code, printed in out + err) == (status, True)
    assert (out + err).count("\n") == 1 or status == 0
    assert not home.exists()
