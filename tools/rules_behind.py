"""Of the comparisons of all rules in docs/results/, what a person who chooses a rule is told: where it was behind.

python -m tools.rules_behind    writes fsd_core/assets/behind.csv anew
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from fsd_core.analysis.matching import MEASURED
from fsd_core.config import RULES
from tests.tools.documents import RESULTS, index

_ENDS = ("difference", "low", "high")
_COLUMNS = (
    "rule", "pair", "task", "temperature", "ratio", "quality", *_ENDS, "best", *(f"best_{end}" for end in _ENDS),
    "source",
)  # fmt: skip


def text() -> str:
    """The file's content."""
    file = io.StringIO()
    writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row for path in sorted(RESULTS.glob("all-rules-*.matched.csv")) for row in _rows(path))
    return file.getvalue()


def _rows(path: Path) -> Iterator[dict[str, str]]:
    name = path.name.removesuffix(".matched.csv")
    about = next(row for row in index() if row["file"] == f"{name}.csv")
    pair, task, temperature = about["pair"], about["task"], about["temperature"]
    with path.open(encoding="utf-8", newline="") as file:
        points = [row for row in csv.DictReader(file) if row["point"] == "ratio"]
    best = {row["at"]: row for row in points if row["rank"] == "leads"}
    told: set[str] = set()
    for row in sorted(points, key=lambda row: float(row["at"])):
        kind = _kind(row["rule"])
        if row["rank"] != "behind" or kind in told:
            continue
        told.add(kind)
        leader = best[row["at"]]
        yield {
            "rule": kind, "pair": pair, "task": task, "temperature": temperature, "ratio": row["at"],
            "quality": row.get("quality") or "accuracy", **{end: f"{float(row[end]):.6f}" for end in _ENDS},
            "best": RULES[_kind(leader["rule"])].title, **{f"best_{end}": f"{float(leader[end]):.6f}" for end in _ENDS},
            "source": name,
        }  # fmt: skip


def _kind(label: str) -> str:
    """The rule of a row, which is called by its title and the settings of all its points."""
    return next(kind for kind, rule in RULES.items() if label == rule.title or label.startswith(f"{rule.title} · "))


if __name__ == "__main__":
    MEASURED.write_text(text(), encoding="utf-8")
