"""Measured comparisons in which a rule lost more than others at equal target passes, for whoever selects it."""

from __future__ import annotations

import csv
from functools import cache

from fsd_core.formatting import written
from fsd_core.models.model_pairs import ASSETS, MODEL_PAIRS
from fsd_core.tasks import TASKS

MEASURED = ASSETS / "behind.csv"
"""generated from docs/results/ by ``python -m tests.tools.rules_behind``"""


@cache
def behind(kind: str) -> tuple[str, ...]:
    """Return a sentence for each comparison in which the rule ``kind`` was behind, at the smallest such ratio of target
    passes (docs/findings.md). Intervals are 95 %."""
    with MEASURED.open(encoding="utf-8", newline="") as file:
        return tuple(_sentence(row) for row in csv.DictReader(file) if row["rule"] == kind)


def _sentence(row: dict[str, str]) -> str:
    temperature = float(row["temperature"])
    sampling = f"sampled at temperature {temperature:g}" if temperature else "greedily"
    setup = f"{MODEL_PAIRS[row['pair']].title}, {TASKS[row['task']].title}, {sampling}"
    point = f"at {float(row['ratio']):g} × fewer target passes than SD"
    if row["quality"] == "excess_nll":
        rule, best = _change(row, ""), _change(row, "best_")
        text = (
            f"its texts are less likely than the target's own by {rule} nats a token, those of {row['best']} by {best}"
        )
    else:
        rule, best = _change(row, "", 100.0), _change(row, "best_", 100.0)
        text = f"accuracy changes by {rule} points, with {row['best']} by {best}"
    return f"Measured ({setup}): {point} {text}."


def _change(row: dict[str, str], prefix: str, scale: float = 1.0) -> str:
    value, low, high = (scale * float(row[prefix + name]) for name in ("difference", "low", "high"))
    return written(value, low, high).with_ends(" [{}, {}]")
