"""Decoding beside a busy process: ``python -m tools.load.neighbour --pair bundled --pair smollm2-135m``.

Each turn runs the command line's own ``run`` twice for every choice of threads, on a quiet machine and beside a process
that computes without end. Printed are tokens per second, and for each choice the median over the turns of busy
over quiet, and of quiet over the quiet speed of torch's own choice. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
PROMPTS = {"bundled": 30, "smollm2-135m": 5}
BUSY = "while True: pass"
CHOICES = ("chosen", "1", "all")
"""of the program, one thread, and as many as there are processors, which is what torch takes"""


@contextmanager
def neighbour() -> Iterator[None]:
    """A process that keeps one processor busy."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def tokens_per_second(home: str, pair: str, choice: str) -> float:
    """Of exact SD on the first arithmetic problems."""
    threads = {"chosen": {}, "1": {"FSD_THREADS": "1"}, "all": {"FSD_THREADS": str(os.cpu_count())}}[choice]
    variables = {k: v for k, v in os.environ.items() if k != "FSD_THREADS"}
    variables |= {"FSD_MLFLOW_URI": "http://127.0.0.1:9", **threads}
    if home:
        variables["FSD_HOME"] = home
    command = [
        sys.executable, "-m", "fsd_core", "run", "--pair", pair, "--acceptance", "speculative", "--fresh", "--json",
        "--task", "arithmetic", "--limit", str(PROMPTS.get(pair, 5)), "--max-new-tokens", "96",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])["tokens_per_second"]


def measure(home: str, pair: str, turns: int) -> dict[str, dict[str, float]]:
    """Medians by choice: ``quiet`` and ``busy`` in tokens per second, and the ratios of one turn's figures."""
    rows: dict[str, list[tuple[float, float]]] = {choice: [] for choice in CHOICES}
    for _ in range(turns):
        for choice, row in rows.items():
            quiet = tokens_per_second(home, pair, choice)
            with neighbour():
                row.append((quiet, tokens_per_second(home, pair, choice)))
    usual = [quiet for quiet, _ in rows["all"]]
    return {
        choice: {
            "quiet": round(median(quiet for quiet, _ in row), 1),
            "busy": round(median(busy for _, busy in row), 1),
            "busy_over_quiet": round(median(busy / quiet for quiet, busy in row), 2),
            "quiet_over_all": round(median(q / u for (q, _), u in zip(row, usual, strict=True)), 2),
        }
        for choice, row in rows.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", action="append", help="may be given several times; bundled by default")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--home", default="", help="FSD_HOME with models that are there already")
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as name:
        for pair in options.pair or ["bundled"]:
            found[pair] = measure(options.home or name, pair, options.turns)
            for choice, row in found[pair].items():
                print(f"{pair:14} {choice:7} " + "  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
