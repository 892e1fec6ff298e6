"""A stand-in for MLflow's server where only what lies before it is looked at: it answers whatever it is asked."""

from __future__ import annotations

import os
import socket
import socketserver
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from fsd_core import system
from fsd_core.worker.supervisor import LOCK

CUT_OFF = "/get-artifact?path=cut-off"
SIZE = 60_000_000


class Upstream(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """``asked``: method and address of every request that came through."""

    daemon_threads = True

    def __init__(self, path: str) -> None:
        self.asked: list[tuple[str, str]] = []
        super().__init__(path, _Answers)


class _Answers(BaseHTTPRequestHandler):
    server: Upstream

    def _answer(self) -> None:
        self.server.asked.append((self.command, self.path))
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b"from MLflow"
        self.send_response(200)
        if self.path == CUT_OFF:  # and then it dies
            self.send_header("Content-Length", str(SIZE))
            self.end_headers()
            self.wfile.write(b"x" * 1_000_000)
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer

    def address_string(self) -> str:  # a socket's peer has none
        return "socket"

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def upstream(home: Path) -> Iterator[Upstream]:
    """Stands in for MLflow's server of a home, from its lock on."""
    held = system.acquire(home / LOCK)
    assert held is not None
    with tempfile.TemporaryDirectory(prefix="fsd-pages-") as folder, Upstream(f"{folder}/mlflow") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        held.write_metadata(pid=os.getpid(), socket=f"{folder}/mlflow")
        try:
            yield server
        finally:
            held.close()
            server.shutdown()
            thread.join()
