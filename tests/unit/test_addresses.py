"""No secret of an address is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsd_core.addresses import without_secrets
from fsd_core.settings import Settings


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://ann:secret@mlflow.example.org/a?b=c", "https://mlflow.example.org/a?b=c"),
        ("https://ann@mlflow.example.org", "https://mlflow.example.org"),
        ("http://ann:p@ss:w0rd@host:5000/", "http://host:5000/"),
        ("http://ann:p/w?x#y@host:5000/", "http://host:5000/"),
        ("postgresql+psycopg://ann:p%40ss@[::1]:5432/db?password=x&sslmode=require&SSLPASSWORD=y",
         "postgresql+psycopg://[::1]:5432/db?password=***&sslmode=require&SSLPASSWORD=***"),
        ("https://host/callback?api_key=1&token=2&page=3", "https://host/callback?api_key=***&token=***&page=3"),
        ("https://host:5000/people/ann@example.org", "https://host:5000/people/ann@example.org"),
        ("sqlite:////home/ann@example.org/mlflow.db", "sqlite:////home/ann@example.org/mlflow.db"),
        ("file:///a b/c", "file:///a b/c"),
    ],
)  # fmt: skip
def test_addresses_lose_their_secrets_alone(address: str, shown: str) -> None:
    assert without_secrets(address) == shown


def test_browsers_are_led_to_an_mlflow_server_without_its_password(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, mlflow_uri="https://ann:secret@mlflow.example.org/")
    assert settings.mlflow_url == "https://mlflow.example.org"
    assert settings.resolved_mlflow_uri == "https://ann:secret@mlflow.example.org/"
