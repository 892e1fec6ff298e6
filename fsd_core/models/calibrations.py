"""Measured effects of leniency on a pair, which set the defaults of its pages. No torch: the pages read this.

``train calibration`` (:mod:`fsd_core.training.threshold_sweep`) writes the file beside the pair's models.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fsd_core.errors import ModelUnavailable
from fsd_core.models.json_files import LARGEST_JSON, bounded_text
from fsd_core.models.model_pairs import MODEL_PAIRS, get_pair

REGIONS = ("free", "open", "traded", "ruined")
"""effects on accuracy, from the least to the most leniency"""
USUAL_PROMPTS = 150
"""enough to decide at 95 % that a setting is within 2 points if it loses none: 0.98¹⁵⁰ < 0.05"""


class PairCalibration(NamedTuple):
    """Results of greedy FSD (``fsd-reducible``, ``js``) on a pair, by threshold."""

    task: str
    problems: int
    """number of problems on which accuracy was measured"""
    exact_length: int
    """draft length at which exact speculative decoding was fastest"""
    threshold: float
    """threshold of the fastest free setting: as accurate as exact decoding within 2 points"""
    draft_length: int
    """draft length of that setting"""
    speedup: float
    """speed-up of that setting over the fastest exact one, in tokens per second"""
    thresholds: tuple[float, ...]
    """that threshold, with the first and the last of each region, ascending"""
    free_until: float
    """the largest threshold up to which all are free"""
    ruinous: float | None
    """the smallest threshold that costs 15 points of accuracy or more"""
    example: str | None
    """a problem that the exact and the free setting solve and full leniency does not"""
    curve: tuple[tuple[float, float, float], ...]
    """by threshold at that draft length: threshold, speed-up over the fastest exact setting, difference in accuracy"""

    def sentence(self) -> str:
        """Return the summary that a page shows."""
        ruined = f", and from js ≤ {self.ruinous:g} it loses 15 points or more" if self.ruinous else ""
        return (
            f"Measured on {self.problems} prompts of {self.task}, greedily: up to js ≤ {self.free_until:g} FSD solves "
            f"as many as SD within 2 points{ruined}."
        )


def calibration_of(pair: str) -> PairCalibration | None:
    """Return a pair's calibration, or ``None`` if no setting was free or nothing was measured.

    A copy of a shipped pair's folder may hold other weights by now.

    Raises whatever ``get_pair`` raises, and ``ModelUnavailable`` for an unreadable file.
    """
    file = get_pair(pair).calibration
    return None if file is None else _read(file, pair)


@cache
def _read(file: Path, pair: str) -> PairCalibration | None:
    try:
        content = json.loads(bounded_text(file, LARGEST_JSON))
        greedy = content["samplings"]["greedy"]
        is_other = content.get("pair", pair) in MODEL_PAIRS.keys() - {pair}
        return _calibration(content, greedy) if greedy["free"] and not is_other else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelUnavailable(
            f"The calibration {file} cannot be read: delete it, or measure it anew with "
            "`python -m fsd_core train calibration`."
        ) from error


def _calibration(content: dict[str, Any], greedy: dict[str, Any]) -> PairCalibration:
    free, exact = greedy["free"], greedy["exact"]
    rows = sorted(
        (row for row in greedy["rows"] if "threshold" in row and row["draft_length"] == free["draft_length"]),
        key=lambda row: row["threshold"],
    )
    ruined = [row["threshold"] for row in rows if row["region"] == "ruined"]
    beyond = [row["threshold"] for row in rows if row["region"] != "free"]
    return PairCalibration(
        task=content["task"], problems=content["prompts"], exact_length=exact["draft_length"],
        threshold=free["threshold"], draft_length=free["draft_length"], speedup=free["speedup"],
        thresholds=_key_thresholds(rows, free["threshold"]), ruinous=min(ruined, default=None),
        example=greedy["example"],
        curve=tuple((row["threshold"], row["speedup"], row["difference"]) for row in rows if "speedup" in row),
        free_until=max((row["threshold"] for row in rows if not beyond or row["threshold"] < beyond[0]), default=0.0),
    )  # fmt: skip


def _key_thresholds(rows: Sequence[dict[str, Any]], best: float) -> tuple[float, ...]:
    selected = {best}
    for region in REGIONS:
        if in_region := [row["threshold"] for row in rows if row["region"] == region]:
            selected |= {in_region[0], in_region[-1]}
    return tuple(sorted(selected))
