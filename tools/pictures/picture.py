"""The README's picture: ``python -m tools.pictures.picture RUN … --baseline RUN --out FILE``, of FSD_HOME.

What Compare shows of these runs in a window 1,280 pixels wide, from the sentence to the table, in Chromium. With
``--figure TITLE`` that figure alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import sync_playwright

from fsd_core.settings import get_settings
from tests.tools.chromium import launch
from tests.tools.served import served

WINDOW = {"width": 1280, "height": 2400}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="ids of runs")
    parser.add_argument("--baseline", required=True, metavar="RUN")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--figure", metavar="TITLE")
    parser.add_argument("--dark", action="store_true")
    given = parser.parse_args()
    with served(get_settings().home) as (url, _), sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page(viewport=WINDOW, color_scheme="dark" if given.dark else "light")
        page.goto(f"{url}/compare?runs={','.join(given.runs)}&baseline={given.baseline}")
        figures = page.locator(".js-plotly-plot")
        figures.nth(1 if given.figure else 0).wait_for(timeout=60_000)
        page.wait_for_timeout(3_000)  # they are drawn one behind the other
        if given.figure:
            figures.filter(has_text=given.figure).first.screenshot(path=given.out)
        else:
            top, bottom = page.locator("#answer").bounding_box(), page.locator("table").first.bounding_box()
            assert top is not None
            assert bottom is not None
            height = bottom["y"] + bottom["height"] + 8 - top["y"]
            page.screenshot(path=given.out, clip={"x": 0, "y": top["y"] - 8, "width": 1280, "height": height + 8})
        browser.close()
    print(given.out)
