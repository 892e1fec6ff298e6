"""The pages in a process of their own."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import psutil

from tests.tools.forked import Forked
from tests.tools.sizes import PATIENCE

ROOT = Path(__file__).parents[2]
START_SECONDS = PATIENCE


@contextmanager
def served(home: Path, **environment: str) -> Iterator[tuple[str, psutil.Process]]:
    """The pages over ``home`` in a process of their own: their address and the process. What they print comes to
    standard error once they have ended.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = os.environ | {"FSD_HOME": str(home), "FSD_MLFLOW_UI": "false"} | environment
    with tempfile.TemporaryDirectory(prefix="fsd-served-") as folder:
        process = Forked(_serve, (port,), variables, Path(folder, "printed"))
        try:
            url = f"http://127.0.0.1:{port}"
            end = time.monotonic() + START_SECONDS
            while True:
                try:
                    urlopen(url, timeout=PATIENCE).close()
                    break
                except HTTPError:  # it answers, if only that one must sign in
                    break
                except URLError:
                    if time.monotonic() > end or process.poll() is not None:
                        raise
                    time.sleep(0.1)
            yield url, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(PATIENCE)
            sys.stderr.write(process.output.read_text())


def _serve(port: int) -> None:
    from tests.tools.serve import serve

    serve(port)
