"""Arguments of ``python app.py``. Each takes the place of a variable of the environment."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from fsd_core.errors import InvalidSetting, NotGiven, OutOfRange

_SEE_HELP = "`python app.py --help` lists the arguments."


class _Parser(argparse.ArgumentParser):
    """Raises its errors as sentences."""

    def error(self, message: str) -> NoReturn:
        raise InvalidSetting(f"{message[0].upper()}{message[1:]}. {_SEE_HELP}")


def given(arguments: Sequence[str]) -> dict[str, str]:
    """Return the variables that the arguments set. Raises ``InvalidSetting``; ``--help`` prints a text and exits."""
    parser = _Parser(
        prog="python app.py",
        description="Serve FSD Lab's pages, with its worker, and print their address.",
        epilog="Every other setting is a variable of the environment: docs/usage.md lists them.",
        allow_abbrev=False,
    )
    parser.add_argument("--host", help="address to listen on (FSD_HOST; default: 127.0.0.1, this machine alone)")
    parser.add_argument("--port", help="port to listen on, 1 to 65535 (FSD_PORT; default: 7860)")
    parser.add_argument(
        "--home", metavar="FOLDER", help="folder of the database, logs and models (FSD_HOME; default: ~/.fsd-lab)"
    )
    values = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    for name, value in values.items():
        if not value.strip():
            raise NotGiven(f"--{name} is empty: expected a value. {_SEE_HELP}")
    port = values.get("port", "1")
    if not (port.isascii() and port.isdecimal() and 1 <= int(port[:6]) <= 65535):
        raise OutOfRange(f"--port is {port[:40]!r}: expected a port from 1 to 65535.")
    return {f"FSD_{name.upper()}": value for name, value in values.items()}
