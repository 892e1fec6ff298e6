"""Quantities and addresses in words: digits follow the interval, and no secret is shown."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from dashboard.tables.logs import requirements_text
from dashboard.ui.templates import ago, duration, durations, interval, moment, quantity
from fsd_core.settings import Settings
from fsd_core.statistics.paired import Verdict
from fsd_core.storage.review_events import Requirements
from fsd_core.texts import Written, count, is_plain_host, is_public, number_text, percent, without_secrets, written

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        (0.9134, 0.88, 0.94, "91 %"),
        (0.9134, 0.9126, 0.9142, "91.34 %"),
        (0.5, None, None, "50.0 %"),
        (None, None, None, "–"),
        (math.nan, 0.1, 0.2, "–"),
    ],
)
def test_a_percentage_shows_the_digits_its_interval_supports(
    value: float | None, low: float | None, high: float | None, expected: str
) -> None:
    assert percent(value, low, high) == expected


def test_a_quantity_carries_its_unit_and_drops_digits_in_doubt() -> None:
    assert quantity(1204.27, 1190, 1220, "tok/s") == "1,204 tok/s"
    assert quantity(3.456, 3.44, 3.47) == "3.46"
    assert quantity(None, unit="nats") == quantity(math.inf) == "–"


def test_an_interval_has_two_ends_or_is_not_told() -> None:
    assert interval(0.88, 0.94, scale=100) == "88 to 94"
    assert interval(None, 0.94) == interval(0.1, math.inf) == ""


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.108, 0.116, "108 to 116 ms"),
        (0.98, 1.24, "980 ms to 1.2 s"),
        (58.0, 61.0, "58.0 s to 1 min 01 s"),
        (245.4, 305.0, "4 min 05 s to 5 min 05 s"),
        (None, 1.0, ""),
        (1.0, math.inf, ""),
    ],
)
def test_an_interval_of_durations_names_a_unit_as_durations_do(
    low: float | None, high: float | None, expected: str
) -> None:
    assert durations(low, high) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0842, "84 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (245.4, "4 min 05 s"),
        (7800.0, "2 h 10 min"),
        (None, "–"),
    ],
)
def test_durations_change_unit_with_their_size(seconds: float | None, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (10, "just now"),
        (50, "1 min ago"),
        (3_000, "50 min ago"),
        (10_900, "3 h ago"),
        (90_000, "1 day ago"),
        (200_000, "2 days ago"),
        (90 * 86_400, "2025-12-04"),
    ],
)
def test_times_past_are_told_coarsely(seconds: int, expected: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == expected


def test_a_moment_is_told_in_utc_whatever_its_zone() -> None:
    assert moment(NOW.astimezone(timezone(timedelta(hours=5)))) == "2026-03-04 05:06 UTC"
    assert moment(None) == "–"


def test_one_is_singular() -> None:
    assert [count(n, "run") for n in (0, 1, 1200)] == ["0 runs", "1 run", "1,200 runs"]


@pytest.mark.parametrize(
    ("share", "low", "high", "expected"),
    [
        (1.0, None, None, "100 %"),  # not 100.0 %
        (1.0, 0.9996, 1.0, "100 %"),
        (0.0, 0.0, 0.004, "0 %"),
        (0.9996, None, None, "99.96 %"),  # what is not all never reads as all
        (0.0004, None, None, "0.04 %"),
        (0.996, 0.97, 1.0, "99.6 %"),
        (0.999999999, None, None, "100 %"),
    ],
)
def test_all_is_written_in_one_way_and_nothing_else_is(
    share: float, low: float | None, high: float | None, expected: str
) -> None:
    assert percent(share, low, high) == expected
    assert written(100 * share, None if low is None else 100 * low, None if high is None else 100 * high, points=True,
                   digits=1).value + " %" == expected  # fmt: skip


def test_the_ends_have_the_digits_of_the_value_and_whole_ends_none() -> None:
    assert written(97.5, 92.25, 100.0, points=True) == Written("98", "92", "100")
    assert written(99.1, 98.53, 100.0, points=True) == Written("99.1", "98.5", "100")
    assert written(5.333, 5.06, 5.61).with_ends(" [{}, {}]") == "5.3 [5.1, 5.6]"
    assert written(0.0842, digits=3).with_ends(" [{}, {}]") == "0.084"
    assert interval(0.9853, 1.0, scale=100) == "98.5 to 100"


def test_a_figure_is_marked_only_where_its_kind_has_an_interval_that_it_lacks() -> None:
    assert written(85.2, digits=1, points=True, rough=True).with_ends(" ({} to {})") == "≈ 85.2"
    assert written(83.1, 80.2, 86.1, points=True, rough=True).with_ends(" ({} to {})") == "83 (80 to 86)"
    assert written(85.2).with_ends(" ({} to {})") == "85.2"


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_finite_number_is_a_dash(unknown: float | None) -> None:
    assert number_text(unknown, 2, signed=True, times=100) == "–"


def test_one_of_anything_is_one() -> None:
    assert [count(n, "minute") for n in (1, 1.0, 0.5, 2.0, 1200, 1234567, 10.0)] == [
        "1 minute", "1 minute", "0.5 minutes", "2 minutes", "1,200 minutes", "1,234,567 minutes", "10 minutes"
    ]  # fmt: skip
    assert Verdict("non-inferior", None, None, None).sentence(1.0) == "Non-inferior within 1 point"
    assert requirements_text(Requirements(margin=1)) == "accuracy within 1 point"


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
