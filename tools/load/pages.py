"""Pages over a large database, alone and beside many people: ``python -m tools.load.pages FOLDER``.

FOLDER is the home that ``tools.load.fill`` has filled. Measured: s from an address to the page's first table,
in a real browser that nobody else disturbs, and for each of many clients at once; and tokens per second that an
experiment records beside those clients, over what it records alone. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

from fsd_core.config import DecodingConfig, Speculative, SweepConfig
from fsd_core.settings import Settings
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from tests.tools.chromium import launch
from tests.tools.served import ROOT, served
from tools.load.crowd import STAY, View, crowd

FIRST_TABLE = {
    "Start": ".start-figures", "Playground": "textarea", "Experiments": "article.exp", "Compare": "table.cmp tbody tr",
    "Runs": "table.fsd-table tbody tr", "Search": "table.fsd-table tbody tr", "One run": "h1.fsd-h1 .pill, .run-links",
    "Theory": ".fsd-tiles",
}  # fmt: skip
FIRST_FIGURE = {"Compare": ".js-plotly-plot", "Theory": ".js-plotly-plot"}
OBSERVE = """selector => {
    const look = () => {
        const found = [...document.querySelectorAll(selector)].some(e => e.offsetParent !== null);
        if (found && window.firstTable === undefined) window.firstTable = performance.now();
        else if (!found) requestAnimationFrame(look);
    };
    look();
}"""


def views(repository: Repository) -> list[View]:
    """The pages that people open, Compare with twelve runs."""
    runs = repository.runs(limit=12)
    twelve = ",".join(run.id for run in runs)
    return [
        View("Start", ""), View("Playground", "playground"), View("Experiments", "experiments"),
        View("Compare", "compare", {"runs": twelve}),
        View("Runs", "runs"), View("Search", "runs", {"search": "Series 7 fsd"}),
        View("One run", "runs", {"run": runs[0].id}), View("Theory", "theory"),
    ]  # fmt: skip


def alone(url: str, pages: Sequence[View], visits: int) -> dict[str, dict[str, float]]:
    """Seconds in a browser: of a first visit with nothing kept, and the median of later ones."""
    found = {}
    with sync_playwright() as playwright:
        browser = launch(playwright)
        looks = [(view, view.name, FIRST_TABLE[view.name]) for view in pages]
        looks += [
            (view, f"{view.name}, figure", FIRST_FIGURE[view.name]) for view in pages if view.name in FIRST_FIGURE
        ]
        for view, name, selector in looks:
            context = browser.new_context()
            times = []
            for _ in range(visits + 1):
                page = context.new_page()
                page.add_init_script(f"({OBSERVE})({json.dumps(selector)})")
                page.goto(f"{url}/{view.page}?{urlencode(view.query)}", wait_until="commit")
                page.wait_for_function("window.firstTable !== undefined", timeout=60_000)
                times.append(page.evaluate("window.firstTable") / 1000)
                page.close()
            context.close()
            found[name] = {"first_visit": round(times[0], 2), "median": round(median(times[1:]), 2)}
        browser.close()
    return found


@contextmanager
def worker(home: Path) -> Iterator[None]:
    """A worker of the home, as the application starts it."""
    variables = os.environ | {"FSD_HOME": str(home), "FSD_MLFLOW_URI": "http://127.0.0.1:9"}
    process = subprocess.Popen([sys.executable, "-m", "fsd_core", "worker"], cwd=ROOT, env=variables)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def recorded_speed(repository: Repository, pair: str, prompts: int) -> float:
    """Tokens per second that a run of exact SD records."""
    decoding = DecodingConfig(acceptance=Speculative(), max_new_tokens=96)
    sweep = SweepConfig(name="Beside a crowd", pair=pair, limit=prompts, decodings=(decoding,))
    experiment = repository.create_experiment(sweep)
    while (run := repository.experiment(experiment).runs[0]).status in ("queued", "running"):
        time.sleep(1.0)
    assert run.metrics is not None, run.error
    speed = run.metrics["tokens_per_second"]
    repository.delete_experiment(experiment)
    return speed if isinstance(speed, float) else speed["value"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--visits", type=int, default=9, help="of each page in the browser")
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--stay", type=float, default=STAY, help="seconds that a client stays on a page")
    parser.add_argument("--pair", default="bundled", help="of the experiment beside the clients")
    parser.add_argument("--prompts", type=int, default=120, help="of the experiment")
    parser.add_argument("--turns", type=int, default=3, help="of the experiment alone and beside the clients")
    options = parser.parse_args()
    repository = Repository(open_database(Settings(home=options.folder).resolved_database_url))
    pages = views(repository)
    found: dict[str, object] = {"runs": repository.count_runs()}
    with served(options.folder) as (url, process):
        if options.visits:
            found["alone"] = alone(url, pages, options.visits)
            _print("alone, in a browser", found["alone"])
        ratios, speeds = [], []
        with worker(options.folder):
            recorded_speed(repository, options.pair, 4)  # loads
            for turn in range(options.turns):
                quiet = recorded_speed(repository, options.pair, options.prompts)
                with crowd(url, pages, options.clients, options.stay) as seen:
                    time.sleep(options.stay)  # until all have come
                    before = process.cpu_times()
                    begun = time.monotonic()
                    busy = recorded_speed(repository, options.pair, options.prompts)
                    spent = time.monotonic() - begun
                    after = process.cpu_times()
                cpu = (after.user + after.system - before.user - before.system) / spent
                speeds.append((quiet, busy))
                ratios.append(busy / quiet)
                print(f"turn {turn}: {quiet:.0f} → {busy:.0f} tokens/s, web process {cpu:.2f} processors", flush=True)
                _print(f"{options.clients} clients", seen.summary())
                found[f"crowd {turn}"] = seen.summary()
                assert not seen.errors, seen.errors[:5]
        found["experiment"] = {"tokens_per_second": speeds, "ratio": round(median(ratios), 3)}
    print(json.dumps(found))


def _print(title: str, rows: dict[str, dict[str, float]]) -> None:
    for name, row in rows.items():
        print(f"{title}: {name:12} " + "  ".join(f"{key} {value}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
