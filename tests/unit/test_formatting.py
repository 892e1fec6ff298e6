"""Quantities in words: digits follow the interval, units the size."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest

from dashboard.tables.logs import requirements_text
from dashboard.ui.templates import ago, duration, durations, interval, moment, quantity
from fsd_core.statistics.paired import Verdict
from fsd_core.storage.review_events import Requirements
from fsd_core.texts import Written, count, number_text, percent, written

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
