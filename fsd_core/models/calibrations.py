"""What was measured of a pair's leniency, and what its pages therefore begin with. No torch: the pages read this.

``train calibration`` (:mod:`fsd_core.training.threshold_sweep`) writes the file beside the pair's models.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fsd_core.errors import ModelUnavailable
from fsd_core.models.model_pairs import get_pair

REGIONS = ("free", "open", "traded", "ruined")
"""what leniency does to accuracy, from the least to the most of it"""
USUAL_PROMPTS = 150
"""as many decide that a setting is within 2 points, at 95 %, if it loses none: 0.98¹⁵⁰ < 0.05"""


class PairCalibration(NamedTuple):
    """How FSD (``fsd-reducible``, ``js``) does greedily on a pair, by its threshold."""

    task: str
    problems: int
    """that accuracy was counted on"""
    exact_length: int
    """draft length at which exact speculative decoding was fastest"""
    threshold: float
    """of the fastest setting that is free: as accurate as exact decoding within 2 points"""
    draft_length: int
    """of that setting"""
    speedup: float
    """of that setting, over the fastest exact one, in tokens per second"""
    thresholds: tuple[float, ...]
    """that one, with the first and the last of each region, rising"""
    free_until: float
    """the largest threshold up to which all are free"""
    ruinous: float | None
    """the least threshold that costs 15 points of accuracy or more"""
    example: str | None
    """a problem that the exact and the free setting solve, and full leniency does not"""

    def sentence(self) -> str:
        """What a page says of it."""
        ruined = f", and from js ≤ {self.ruinous:g} it loses 15 points or more" if self.ruinous else ""
        return (
            f"Measured on {self.problems} prompts of {self.task}, greedily: up to js ≤ {self.free_until:g} FSD solves "
            f"as many as SD within 2 points{ruined}."
        )


def calibration_of(pair: str) -> PairCalibration | None:
    """What was measured of a pair; ``None`` where nothing was, or nothing was free.

    Raises what ``get_pair`` raises, and ``ModelUnavailable`` for a file that cannot be read.
    """
    file = get_pair(pair).calibration
    return None if file is None else _read(file)


@cache
def _read(file: Path) -> PairCalibration | None:
    try:
        told = json.loads(file.read_text())
        greedy = told["samplings"]["greedy"]
        return _calibration(told, greedy) if greedy["free"] else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelUnavailable(
            f"The calibration {file} cannot be read: delete it, or measure it anew with "
            "`python -m fsd_core train calibration`."
        ) from error


def _calibration(told: dict[str, Any], greedy: dict[str, Any]) -> PairCalibration:
    free, exact = greedy["free"], greedy["exact"]
    rows = sorted(
        (row for row in greedy["rows"] if "threshold" in row and row["draft_length"] == free["draft_length"]),
        key=lambda row: row["threshold"],
    )
    ruined = [row["threshold"] for row in rows if row["region"] == "ruined"]
    beyond = [row["threshold"] for row in rows if row["region"] != "free"]
    return PairCalibration(
        task=told["task"], problems=told["prompts"], exact_length=exact["draft_length"], threshold=free["threshold"],
        draft_length=free["draft_length"], speedup=free["speedup"], thresholds=_telling(rows, free["threshold"]),
        ruinous=min(ruined, default=None), example=greedy["example"],
        free_until=max((row["threshold"] for row in rows if not beyond or row["threshold"] < beyond[0]), default=0.0),
    )  # fmt: skip


def _telling(rows: Sequence[dict[str, Any]], best: float) -> tuple[float, ...]:
    told = {best}
    for region in REGIONS:
        if among := [row["threshold"] for row in rows if row["region"] == region]:
            told |= {among[0], among[-1]}
    return tuple(sorted(told))
