"""How much the web process grows with its visitors: ``python -m tools.attack.growth --visits 1000``.

Serves the pages of a new home and visits two of them, a light one and the one with most figures. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.tools.plausible import add_finished, new_repository
from tests.tools.served import served
from tests.tools.visitor import Visitor

MEGABYTE = 1_000_000
WARM_UP = 100
MOST_GROWTH = 50
"""megabytes over 1,000 visits"""


def visit(url: str, page: str, **query: str) -> None:
    """One visit from the opening of the page to the closing of the tab."""
    with Visitor(url, page, None, **query) as visitor:
        visitor.open()
        visitor.tick()


def megabytes(process: psutil.Process) -> float:
    """Memory of its own that a process has."""
    return process.memory_info().rss / MEGABYTE


def growth(url: str, process: psutil.Process, visits: int, warm_up: int, page: str, **query: str) -> dict[str, float]:
    """Memory before and after ``visits`` of a page, once ``warm_up`` of them have been."""
    for _ in range(warm_up):
        visit(url, page, **query)
    before, began = megabytes(process), time.monotonic()
    for done in range(1, visits + 1):
        visit(url, page, **query)
        if done % 100 == 0:
            print(f"/{page}: {done} visits, {megabytes(process):.0f} MB", file=sys.stderr, flush=True)
    after, seconds = megabytes(process), time.monotonic() - began
    return {
        "visits": visits,
        "seconds": round(seconds, 1),
        "before_mb": round(before, 1),
        "after_mb": round(after, 1),
        "growth_mb": round(after - before, 1),
    }


def measured(folder: Path, visits: int, warm_up: int) -> dict[str, dict[str, float]]:
    """The growth over so many visits of each of the two pages."""
    experiment = add_finished(new_repository(folder), "Visited")
    with served(folder) as (url, process):
        return {
            "runs": growth(url, process, visits, warm_up, "runs"),
            "compare": growth(url, process, visits, warm_up, "compare", experiment=experiment),
        }


def grown(folder: Path, visits: int = 250) -> str:
    """The trial of the attack: both pages together stay below what 1,000 visits may cost."""
    found = measured(folder, visits, WARM_UP)
    cost = {page: row["growth_mb"] for page, row in found.items()}
    assert sum(cost.values()) < MOST_GROWTH, cost
    told = ", ".join(f"{page} {megabytes:+.1f} MB" for page, megabytes in cost.items())
    return f"{visits} visits of each page: {told}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visits", type=int, default=1000, help="of each page")
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help="visits of each page before the first look")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(measured(Path(name), options.visits, options.warm_up)))


if __name__ == "__main__":
    main()
