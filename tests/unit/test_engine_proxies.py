"""An engine elsewhere, and an environment whose ways out cannot be used."""

from __future__ import annotations

import pytest

from fsd_core.engines.client import EngineClient
from fsd_core.errors import Misconfigured
from fsd_core.rules import Served


@pytest.mark.parametrize(
    ("variable", "value"),
    [("ALL_PROXY", "socks5://127.0.0.1:1"), ("NO_PROXY", "::1/128"), ("SSL_CERT_FILE", "/gone.pem")],
)
def test_it_is_told_which_variables_to_correct(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(Misconfigured, match=variable):
        EngineClient(Served(engine="vllm", endpoint="mine", url="https://engine.example/v1", model="toy"))
