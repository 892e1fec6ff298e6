"""The pictures of docs/replay.md: ``python -m tools.pictures.replay_picture docs/results/replay.csv --out FILE``.

What Compare draws of predicted and measured target passes, from the settings of a CSV that ``replay --measure --csv``
has written, in Chromium.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from playwright.sync_api import sync_playwright

from fsd_core.config.options import method
from fsd_core.plots import curves
from fsd_core.statistics.intervals import Estimate
from tests.tools.chromium import launch


def points(file: Path) -> list[curves.Point]:
    """The settings of a file that have a knob."""
    with file.open(encoding="utf-8", newline="") as lines:
        return [_point(row) for row in csv.DictReader(lines) if row["knob"]]


def _point(row: dict[str, str]) -> curves.Point:
    chosen = {"acceptance": row["acceptance"], row["knob"]: float(row["value"])}
    both = [Estimate(*(_number(row[name + end]) for end in ("", "_low", "_high"))) for name in _COLUMNS]
    return method(chosen | {"draft_length": int(row["draft_length"])}), both[0], both[1]


_COLUMNS = ("passes", "measured_passes")


def _number(text: str) -> float:
    return float(text) if text else float("nan")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    given = parser.parse_args()
    drawn = curves.draw_predicted(curves.by_rule(points(given.file)))
    with sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page(viewport={"width": 1000, "height": int(drawn.to_dict()["layout"]["height"]) + 20})
        page.set_content(drawn.to_html(include_plotlyjs=True))
        page.locator(".js-plotly-plot").screenshot(path=given.out)
        browser.close()
    print(given.out)
