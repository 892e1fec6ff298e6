"""The application in a process of its own, over a real database that the tests fill; no worker."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from fsd_core.tracking.database.repository import Repository
from tests.tools.forked import Forked
from tests.tools.plausible import new_repository
from tests.tools.serve import serve

BROWSER_OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip
START_SECONDS = 90


@dataclass(frozen=True)
class Site:
    """The pages as they are served, and the database under them."""

    url: str
    home: Path
    repository: Repository
    log: Path
    temporary: Path
    """the server's own folder for temporary files"""


@contextmanager
def serving(home: Path, **environment: str) -> Iterator[Site]:
    """The application over an empty database in ``home``, with these variables set."""
    repository = new_repository(home)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    temporary = home / "temporary"
    temporary.mkdir()
    log = home / "web.log"
    own = {"FSD_HOME": str(home), "FSD_MLFLOW_URI": "http://127.0.0.1:5999", "TMPDIR": str(temporary)}
    process = Forked(serve, (port,), os.environ | own | environment, log)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, process, log)
        yield Site(url, home, repository, log, temporary)
    finally:
        process.terminate()
        process.wait(20)


def _wait(url: str, process: Forked, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            urlopen(url, timeout=10).close()
            return
        except HTTPError:  # it answers, if only that one must sign in
            return
        except URLError:
            time.sleep(0.2)
    pytest.fail(f"The pages are not served:\n{log.read_text()}")
