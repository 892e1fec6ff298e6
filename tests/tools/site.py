"""The application in a process of its own, over a real database that the tests fill; no worker."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from fsd_core.storage.repository import Repository
from tests.tools.forked import Forked
from tests.tools.plausible import new_repository
from tests.tools.serve import serve_anew
from tests.tools.sizes import PATIENCE

Serve = Callable[[socket.socket, Connection], None]
MOST_KEPT = 4
"""applications that are kept at once, each some 100 MB, for the next home in the same environment"""


@dataclass(frozen=True)
class Site:
    """The pages as they are served, and the database under them."""

    url: str
    home: Path
    repository: Repository
    log: Path
    temporary: Path
    """the server's own folder for temporary files"""
    pid: int
    routes: list[tuple[str, str]] = field(repr=False)
    """method and path of all that the application has, Gradio's own among them"""


@contextmanager
def serving(home: Path, serve: Serve = serve_anew, **environment: str) -> Iterator[Site]:
    """The application over an empty database in ``home``, with these variables set; ``serve`` builds and serves it."""
    repository = new_repository(home)
    (home / "temporary").mkdir()
    application = _application(home, serve, environment)
    pid = application.start()
    try:
        application.wait()
        at = application.home
        yield Site(application.url, at, repository, at / "web.log", at / "temporary", pid, application.routes)
    finally:
        application.end()


class _Application:
    """The application at an address of its own, in one environment, over one home after the other.

    It knows the home by a link, which leads to the one that is served now.
    """

    def __init__(self, home: Path, serve: Serve, environment: dict[str, str]) -> None:
        self.made_for = serve, environment
        self._folder = Path(tempfile.mkdtemp(prefix="fsd-site-"))
        self.home = self._folder / "home"
        self.lead_to(home)
        own = {"FSD_HOME": str(self.home), "TMPDIR": str(self.home / "temporary")}
        # The address stays taken between two servers: nothing else can come to have its port.
        with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
            self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            self._orders, theirs = Pipe()
            log = self._folder / "build.log"
            self._process = Forked(serve, (listening, theirs), environment | own, log)
            theirs.close()
        self.routes = self._answer(log)
        self.server = 0

    def lead_to(self, home: Path) -> None:
        """The next server is over this home."""
        new = self._folder / "next"
        new.symlink_to(home)
        new.replace(self.home)

    def start(self) -> int:
        """Starts a server; returns its process id."""
        self._orders.send(self.home / "web.log")
        self.server = self._answer(self.home / "web.log")
        return self.server

    def wait(self) -> None:
        """Until the server answers."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and not self._orders.poll():
            try:
                urlopen(f"{self.url}/favicon.ico", timeout=10).close()
                return
            except HTTPError:  # it answers, if only that one must sign in
                return
            except (URLError, TimeoutError, ConnectionError):
                time.sleep(0.05)
        pytest.fail(f"The pages are not served:\n{(self.home / 'web.log').read_text()}")

    def end(self) -> None:
        """Ends the server; the application is there for the next."""
        if not self._orders.poll():
            os.kill(self.server, signal.SIGKILL)
        self._answer(self.home / "web.log")
        self.server = 0
        _kept.append(self)
        while len(_kept) > MOST_KEPT:
            _kept.pop(0).close()

    def close(self) -> None:
        if self.server:
            with suppress(ProcessLookupError):
                os.kill(self.server, signal.SIGKILL)
        self._process.kill()
        self._process.wait(PATIENCE)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answer(self, log: Path) -> Any:
        if self._orders.poll(PATIENCE):
            with suppress(EOFError):
                return self._orders.recv()
        pytest.fail(f"The pages are not served:\n{log.read_text()}")


_kept: list[_Application] = []


def _application(home: Path, serve: Serve, own: dict[str, str]) -> _Application:
    """One that is kept, or a new one."""
    environment = dict(os.environ) | {"FSD_MLFLOW_URI": "http://127.0.0.1:5999"} | own
    environment.pop("PYTEST_CURRENT_TEST", None)
    for kept in _kept:
        if kept.made_for == (serve, environment):
            _kept.remove(kept)
            kept.lead_to(home)
            return kept
    return _Application(home, serve, environment)


@atexit.register
def _close() -> None:
    for kept in _kept:
        kept.close()
