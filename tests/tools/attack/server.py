"""The pages in a process of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import psutil

ROOT = Path(__file__).parents[3]
START_SECONDS = 90


@contextmanager
def served(home: Path, **environment: str) -> Iterator[tuple[str, psutil.Process]]:
    """The pages over ``home`` in a process of their own: their address and the process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = os.environ | {"FSD_HOME": str(home), "FSD_MLFLOW_UI": "false"} | environment
    command = [sys.executable, "-m", "tests.tools.serve", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, env=variables)
    try:
        url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                urlopen(url, timeout=10).close()
                break
            except HTTPError:  # it answers, if only that one must sign in
                break
            except URLError:
                if time.monotonic() > end or process.poll() is not None:
                    raise
                time.sleep(0.2)
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)
