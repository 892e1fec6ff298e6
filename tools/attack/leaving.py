"""SIGTERM to the application while pages are open, a text is written and an experiment runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fsd_core import system
from fsd_core.settings import Settings
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from tests.tools.worker_process import ROOT, free_port, until

LONGEST = 8.0
"""seconds from the signal to the end of the process"""
BURNING = 4
"""processes that take the processors meanwhile"""


@contextmanager
def _burning(processes: int) -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def _open_page(url: str, page: int) -> None:
    with suppress(OSError), urllib.request.urlopen(f"{url}/gradio_api/heartbeat/page{page}", timeout=600) as stream:
        stream.read()


def _ended(home: Path, port: int, processes: int) -> float:
    """Return the seconds that the application takes to end."""
    variables = {**os.environ, "FSD_HOME": str(home), "FSD_PORT": str(port), "FSD_MLFLOW_UI": "false"}
    url = f"http://127.0.0.1:{port}"
    with (home / "app.out").open("w") as output:
        app = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=variables, stdout=output, stderr=output)
        try:
            until(lambda: "is ready" in (home / "app.out").read_text(), "the application")
            settings = [{"acceptance": "speculative"}, {"acceptance": "fsd", "threshold": [0.1, 0.2, 0.3]}]
            body = json.dumps({"settings": settings, "limit": 500}).encode()
            call = urllib.request.Request(f"{url}/api/v1/calls/start_experiment", body, method="POST")
            experiment = json.load(urllib.request.urlopen(call, timeout=300))["experiment"]
            repository = Repository(open_database(Settings(home=home).resolved_database_url))
            until(lambda: repository.experiment(experiment).prompts_done > 2, "its first prompts")
            for page in range(5):
                threading.Thread(target=_open_page, args=(url, page), daemon=True).start()
            with _burning(processes):
                begun = time.monotonic()
                app.send_signal(signal.SIGTERM)
                app.wait(300)
                return time.monotonic() - begun
        finally:
            app.kill()
            app.wait()
            until(lambda: not system.holder(home / "worker.lock"), "the worker's end")


def leaves_in_time(folder: Path) -> str:
    """The end of the application, beside nothing and beside processes that take all there is."""
    port, seconds = free_port(7950), []
    for processes in (0, BURNING):
        home = folder / f"beside-{processes}"
        home.mkdir()
        seconds.append(_ended(home, port, processes))
        assert seconds[-1] <= LONGEST, f"{seconds[-1]:.1f} s beside {processes} other processes"
    return f"ended {seconds[0]:.1f} s after the signal, and {seconds[1]:.1f} s beside {BURNING} busy processes"
