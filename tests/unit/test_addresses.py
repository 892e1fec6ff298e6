"""No secret of an address is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsd_core.settings import Settings
from fsd_core.texts import is_plain_host, is_public, without_secrets


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


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.0.0.7", "100.64.0.1", "127.0.0.1", "169.254.169.254", "192.0.0.8", "192.0.0.9", "192.0.2.1",
        "192.88.99.1", "192.168.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1",
        "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b::808:808",
        "64:ff9b:1::1", "100::1", "2001:0:7f00:1::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::", "3fff::1",
        "5f00::1", "fc00::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff0e::1",
    ],
)  # fmt: skip
def test_an_address_that_is_private_or_stands_for_another_is_not_public(address: str) -> None:
    assert not is_public(address)


def test_addresses_that_the_internet_reaches_are_public() -> None:
    assert all(map(is_public, ("8.8.8.8", "93.184.216.34", "192.0.1.1", "2606:4700::1111", "2a00:1450:4001:80b::200e")))


@pytest.mark.parametrize(
    "host",
    ["", "0177.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "127.0.0.1.", "127.0.0.256", "1.2.3.4.5", "a.1",
     "１２７.0.0.1", "ｌocalhost", "exämple.org", "a..b", ".a", "a b", "a%41",
     "a" * 64, "a." * 127 + "a", "fe80::1%eth0", "::g", "v1.x:y"],
)  # fmt: skip
def test_a_host_that_programs_read_differently_is_not_plain(host: str) -> None:
    assert not is_plain_host(host)


def test_names_and_addresses_as_they_are_usually_written_are_plain() -> None:
    hosts = "localhost my_engine gpu-1.internal a.b. EXAMPLE.org xn--exmple-cua.org 10.0.0.7 ::1 ::ffff:1.2.3.4 1a.2b"
    assert all(map(is_plain_host, hosts.split()))
