"""Quantities in words: digits follow the interval, units the size."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest

from dashboard.ui.formatting import ago, duration, interval, moment, percent, quantity
from fsd_core.figures.numbers import count

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
