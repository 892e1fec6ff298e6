"""Pictures of every page: ``python -m tools.pictures.screenshots --out docs/images/pages``.

Each page light and dark, 1,440 and 400 pixels wide, by the application with its worker in Chromium. Without ``--home``
the runs that pages show are measured first, with the bundled pair, which takes some five minutes; with one, those of
that home are shown, from a copy of its database. Pictures are WebP with few colours, cut off after ``MOST`` pixels.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from tests.tools.chromium import launch
from tests.tools.every_page import every_page
from tests.tools.worker_process import ROOT

WIDTHS = {1440: 1000, 400: 860}
"""of the windows, with their heights"""
MOST = 3200
"""pixels of height that a picture has at most"""
THEMES = ("light", "dark")
START_SECONDS = 120
MEASURED = """
sweep --name "Several drafts, sampled" --acceptance k-seq --acceptance rrs --acceptance fsd --thresholds 0.1 --temperature 1 --limit 40
run --acceptance draft-only --limit 40
sweep --name "Chains, trees and the head" --thresholds 0.1,0.3 --drafter draft-model --drafter eagle --topology chain --topology dynamic-tree --limit 40
sweep --name "Thresholds of the bundled pair" --thresholds 0.02,0.1,0.2,0.3,0.4 --draft-length 5 --draft-length 16 --limit 80
"""  # noqa: E501
"""commands; the page Compare shows the last experiment"""


def measure(home: Path) -> None:
    """Runs of several families, of the bundled pair."""
    for command in MEASURED.strip().splitlines():
        arguments = [sys.executable, "-m", "fsd_core", *shlex.split(command)]
        subprocess.run(arguments, cwd=ROOT, env=_environment(home), check=True)


def _environment(home: Path, **more: str) -> dict[str, str]:
    return os.environ | {"FSD_HOME": str(home), "FSD_MLFLOW_UI": "false", "FSD_THREADS": "1"} | more


@contextmanager
def application(home: Path, **environment: str) -> Iterator[str]:
    """``app.py`` over ``home``, with its worker; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, "app.py"], cwd=ROOT, env=_environment(home, FSD_PORT=port, **environment)
    )
    try:
        url, end = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
        while not _answers(url):
            if time.monotonic() > end or process.poll() is not None:
                raise SystemExit("The application did not start.")
            time.sleep(0.3)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        urlopen(url, timeout=10).close()
    except HTTPError:  # it answers, if only that one must sign in
        return True
    except (URLError, TimeoutError):
        return False
    return True


def take(browser: Browser, addresses: dict[str, str], out: Path, only: list[str]) -> None:
    """A picture of each page in each width and theme."""
    for width, height in WIDTHS.items():
        for theme in THEMES:
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
            for name, address in addresses.items():
                if only and name not in only:
                    continue
                page = context.new_page()
                page.goto(address)
                _settle(page, name)
                save(page.screenshot(full_page=True), out / f"{name}-{width}-{theme}.webp")
                page.close()
            context.close()


def _settle(page: Page, name: str) -> None:
    """Waits until the page shows what it is going to show; the Playground, what its settings wrote."""
    if name == "playground":
        page.get_by_role("button", name="Generate").click()
        page.locator("#verdict .cmp-note").wait_for(timeout=120_000)
        return
    if name == "compare":
        page.locator(".js-plotly-plot").first.wait_for(timeout=60_000)
    page.wait_for_timeout(2500)  # figures are drawn one behind the other


def save(picture: bytes, path: Path) -> None:
    """The top of a picture, with 128 colours, which is what its flat areas need."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image = image.crop((0, 0, image.width, min(image.height, MOST)))
    image.quantize(128, dither=Image.Dither.NONE).convert("RGB").save(
        path, "WEBP", lossless=True, quality=100, method=6
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument(
        "--home", type=Path, metavar="FOLDER", help="an FSD_HOME with runs; without one they are measured"
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="of a page; may be repeated")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        home.mkdir()
        if given.home:
            backup = [sys.executable, "-m", "fsd_core", "db", "backup", str(home / "fsd.db")]
            subprocess.run(backup, cwd=ROOT, env=_environment(given.home), check=True)
        else:
            measure(home)
        repository = Repository(open_database(f"sqlite:///{home / 'fsd.db'}"))
        pages = every_page(repository)
        with sync_playwright() as playwright:
            browser = launch(playwright)
            with application(home) as url:
                take(browser, {name: url + path for name, path in pages.items()}, given.out, given.only)
            with application(home, FSD_ACCESS="password") as url:
                take(browser, {"sign-in": f"{url}/login"}, given.out, given.only)
            browser.close()
    print(f"{sum(file.stat().st_size for file in given.out.glob('*.webp')):,} bytes in {given.out}")


if __name__ == "__main__":
    main()
