"""Syntax of thresholds, shared by the command line, the pages and Python."""

from __future__ import annotations

import math
import re

from fsd_core.errors import Malformed, NotGiven, OutOfRange

OFF = "off"
MOST_THRESHOLDS = 100
DIGITS = 6
"""decimal places of the values of a range, so that 0.15 is the same setting wherever it is typed"""


def parse_threshold(text: str) -> float | None:
    """Return a number, or ``None`` for ``off``: exact speculative decoding.

    Raises ``InvalidSetting`` for anything else. The rule checks whether its divergence can be that large.
    """
    if text.strip().lower() == OFF:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise Malformed(
            f"The threshold {text.strip()[:60]!r} is not a number: expected one such as 0.1, or '{OFF}' for exact SD."
        )
    return value


def parse_thresholds(text: str) -> tuple[float | None, ...]:
    """Return thresholds from a list such as ``0.05, 0.1, off``, ranges ``start:stop:count`` with both ends, or both.

    ``0,05; 0,1`` has decimal commas. Raises ``InvalidSetting`` for anything else.
    """
    thresholds: list[float | None] = []
    decimal_commas = ";" in text and "." not in text and re.search(r"\d,\d", text)
    if not decimal_commas and re.search(r"(^|[;,\s])0+,\s*0\d", text):
        raise Malformed(f"The thresholds {text.strip()[:60]!r} have decimal commas: expected 0.05, 0.1 or 0,05; 0,1.")
    if decimal_commas:
        text = text.replace(",", ".")
    for part in text.replace(";", ",").split(","):
        if word := part.strip():
            thresholds += _range(word) if ":" in word else [parse_threshold(word)]
    if not thresholds:
        raise NotGiven("The thresholds are empty: expected a list such as 0.05, 0.1, 0.2 or a range such as 0:0.6:7.")
    thresholds = list(dict.fromkeys(thresholds))
    if len(thresholds) > MOST_THRESHOLDS:
        raise OutOfRange(f"These are {len(thresholds)} thresholds: expected at most {MOST_THRESHOLDS}.")
    return tuple(thresholds)


def _range(word: str) -> list[float | None]:
    parts = [part.strip() for part in word.split(":")]
    try:
        start, stop, count = float(parts[0]), float(parts[1]), int(parts[2])
    except (ValueError, IndexError):
        start, stop, count = math.nan, math.nan, 0
    if len(parts) != 3 or not (math.isfinite(start) and start < stop < math.inf and 2 <= count <= MOST_THRESHOLDS):
        raise Malformed(
            f"The range {word[:60]!r} cannot be used: expected start:stop:count with a stop above the start and a "
            f"count from 2 to {MOST_THRESHOLDS}, such as 0:0.6:7 for seven thresholds."
        )
    return [round(start + (stop - start) * i / (count - 1), DIGITS) for i in range(count)]
