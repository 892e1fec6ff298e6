"""How soon each page shows something, cold: ``python -m tools.first_paint``, ``--busy 2`` beside two busy processes.

Browser and server are on this machine; every visit has a browser without a cache. *First paint* is that of the page's
own HTML, with its texts and figures as they are then; *answered* is when Gradio has drawn it and its fields can be
used; *picture* is the first chart of Compare. Seconds, medians of the visits.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, sync_playwright

from tests.tools.chromium import launch
from tests.tools.every_page import every_page
from tests.tools.plausible import add_finished, new_repository
from tools.pictures.screenshots import application

PATIENCE = 60_000  # milliseconds
_WATCH = """
window.fsdSeen = {};
new MutationObserver(() => {
  const note = (name) => { fsdSeen[name] ??= performance.now(); };
  if (document.querySelector('gradio-app') && !document.getElementById('fsd-first')) note('answered');
  if (document.querySelector('.js-plotly-plot .main-svg')) note('picture');
}).observe(document, {childList: true, subtree: true});
"""
_SEEN = "[performance.getEntriesByName('first-contentful-paint')[0]?.startTime, fsdSeen.answered, fsdSeen.picture]"


def visit(browser: Browser, address: str, has_picture: bool) -> list[float | None]:
    """Seconds until a cold visit shows something, is answered, and has its picture."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(_WATCH)
    page = context.new_page()
    page.goto(address)
    page.wait_for_function(f"fsdSeen.{'picture' if has_picture else 'answered'}", timeout=PATIENCE)
    seen = page.evaluate(_SEEN)
    context.close()
    return [None if one is None else one / 1000 for one in seen]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that compute without end."""
    started = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(processes)]
    for one in started:
        one.start()
    try:
        yield
    finally:
        for one in started:
            one.kill()


def _spin() -> None:
    while True:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visits", type=int, default=5, metavar="N", help="of each page")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="processes that compute meanwhile")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        repository = new_repository(Path(folder))
        add_finished(repository, limit=24)
        addresses = every_page(repository)
        with application(Path(folder)) as url, sync_playwright() as playwright, busy(given.busy):
            browser = launch(playwright)
            visit(browser, url, False)  # the first one of a browser is not counted
            print("| page | first paint | answered | picture |\n|---|---|---|---|")
            for name, path in addresses.items():
                if name == "nothing":
                    continue
                times = [visit(browser, f"{url}{path}", name == "compare") for _ in range(given.visits)]
                cells = [[one for one in column if one is not None] for column in zip(*times, strict=True)]
                print("| " + " | ".join([name, *(f"{median(cell):.2f}" if cell else "–" for cell in cells)]) + " |")
            browser.close()


if __name__ == "__main__":
    main()
