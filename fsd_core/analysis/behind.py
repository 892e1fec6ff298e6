"""Where a rule was measured to lose more than others at equal target passes, for whoever chooses it."""

from __future__ import annotations

import csv
from functools import cache

from fsd_core.formatting import written
from fsd_core.models.model_pairs import ASSETS, MODEL_PAIRS
from fsd_core.tasks import TASKS

MEASURED = ASSETS / "behind.csv"
"""``python -m tests.tools.rules_behind`` makes it of docs/results/"""


@cache
def behind(kind: str) -> tuple[str, ...]:
    """A sentence for each comparison in which the rule ``kind`` was behind, at the least ratio of target passes at
    which it was (docs/findings.md). Intervals are of 95 %."""
    with MEASURED.open(encoding="utf-8", newline="") as file:
        return tuple(_sentence(row) for row in csv.DictReader(file) if row["rule"] == kind)


def _sentence(row: dict[str, str]) -> str:
    temperature = float(row["temperature"])
    how = f"sampled at temperature {temperature:g}" if temperature else "greedily"
    where = f"{MODEL_PAIRS[row['pair']].title}, {TASKS[row['task']].title}, {how}"
    at = f"at {float(row['ratio']):g} × fewer target passes than SD"
    if row["quality"] == "excess_nll":
        rule, best = _change(row, ""), _change(row, "best_")
        words = (
            f"its texts are less likely than the target's own by {rule} nats a token, those of {row['best']} by {best}"
        )
    else:
        rule, best = _change(row, "", 100.0), _change(row, "best_", 100.0)
        words = f"accuracy changes by {rule} points, with {row['best']} by {best}"
    return f"Measured ({where}): {at} {words}."


def _change(row: dict[str, str], of: str, scale: float = 1.0) -> str:
    value, low, high = (scale * float(row[of + name]) for name in ("difference", "low", "high"))
    return written(value, low, high).with_ends(" [{}, {}]")
