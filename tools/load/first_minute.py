"""The first minute of a newcomer, from a warm environment: ``python -m tools.load.first_minute --turns 3``.

Each turn starts ``python app.py`` on an empty home, opens the Playground in Chromium as soon as something answers, and
clicks *Generate* as soon as it can. Measured are seconds from the start until the address answers, the page stands, and
the first tokens and both whole texts are there. The last line is JSON with the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from urllib.error import URLError
from urllib.request import urlopen

from playwright.sync_api import Browser, sync_playwright

from tests.tools.chromium import launch
from tests.tools.served import ROOT, START_SECONDS


def turn(browser: Browser, home: Path) -> dict[str, float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, begun = f"http://127.0.0.1:{port}", time.monotonic()
    own = {"FSD_HOME": str(home), "FSD_PORT": str(port)}
    process = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=os.environ | own, stdout=subprocess.DEVNULL)
    found: dict[str, float] = {}

    def reached(what: str) -> None:
        found[what] = round(time.monotonic() - begun, 2)

    try:
        while True:
            try:
                urlopen(url, timeout=10).close()
                break
            except URLError:
                if time.monotonic() - begun > START_SECONDS or process.poll() is not None:
                    raise
                time.sleep(0.05)
        reached("answers")
        page = browser.new_page()
        page.goto(f"{url}/playground")
        button = page.get_by_role("button", name="Generate")
        button.wait_for()
        page.wait_for_function("document.querySelector('#prompt-text textarea')?.value.startsWith('Question')")
        reached("page")
        button.click()
        page.locator("#lane-1 .tok").first.wait_for(timeout=START_SECONDS * 1000)
        reached("first tokens")
        for lane in (1, 2):
            page.locator(f"#lane-{lane} section[data-done=true]").wait_for(timeout=START_SECONDS * 1000)
        reached("both texts")
        page.close()
    finally:
        process.terminate()
        process.wait(30)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    turns = []
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for _ in range(given.turns):
            with tempfile.TemporaryDirectory() as home:
                turns.append(turn(browser, Path(home)))
                print(turns[-1], flush=True)
        browser.close()
    print(json.dumps({what: round(median(one[what] for one in turns), 2) for what in turns[0]}))
