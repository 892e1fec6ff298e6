"""The finalists of a calibration as a table of texts, for the pages and for a notebook."""

from __future__ import annotations

from typing import NamedTuple

from fsd_core.calibration.findings import SettingResult
from fsd_core.formatting import number

FINALIST_COLUMNS = ("Finalist", "Prompts", "Points", "Points, at least", "Accepted, %", "× as fast as SD")


class FinalistRow(NamedTuple):
    """One finalist, in the order of ``FINALIST_COLUMNS``."""

    label: str
    certainty: str
    """``sure`` or ``not sure``, below the label"""
    prompts: str
    difference: str
    at_least: str
    accepted: str
    over_exact: str
    interval: str
    """of ``over_exact``, below it; empty without one"""


def finalist_row(result: SettingResult) -> FinalistRow:
    """Return the texts of one finalist."""
    ends = result.over_exact_interval
    return FinalistRow(
        label=result.decoding.label,
        certainty="sure" if result.sure else "not sure",
        prompts=str(result.prompts),
        difference=number(result.difference, 1, signed=True, times=100),
        at_least=number(result.at_least, 1, signed=True, times=100),
        accepted=number(result.acceptance, 0, times=100),
        over_exact=number(result.over_exact, 2),
        interval=f"{ends.low:.2f} to {ends.high:.2f}" if ends else "",
    )
