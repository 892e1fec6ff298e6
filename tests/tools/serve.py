"""Serves the pages of one home, without a worker: ``python -m tests.tools.serve PORT``, with FSD_HOME set.

To build the application takes seconds of a processor. ``serve_anew`` builds it once, and each server is a fork of that
process: with nothing in its memory of the ones before, and at the same address, so that a browser has the scripts.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from multiprocessing.connection import Connection, wait
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from dashboard.web import build_app
from fsd_core.middleware import bound_log_lines
from fsd_core.settings import get_settings
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from tests.tools.routes import routes
from tests.tools.sizes import PATIENCE


def serve(port: int) -> None:
    """Serves until it is ended."""
    bound_log_lines()
    settings = get_settings()
    repository = Repository(open_database(settings.resolved_database_url))
    uvicorn.run(build_app(repository, settings), port=port, log_level="warning")


def serve_anew(listening: socket.socket, orders: Connection) -> None:
    """Sends the routes of the application; then, for the path of each log that comes, a server's process id and how it
    ended. The home may be another folder each time, with another database."""
    bound_log_lines()
    settings = get_settings()
    database = open_database(settings.resolved_database_url, busy_timeout=PATIENCE)
    app = build_app(Repository(database), settings)
    database.close()  # no connection crosses a fork
    gc.collect()
    gc.freeze()  # what is shared with the forks stays shared
    orders.send(sorted(set(routes(app.routes))))
    while True:
        try:
            log = orders.recv()
        except EOFError:
            return
        child = os.fork()
        if not child:
            try:
                _serve(app, listening, log)
            finally:
                os._exit(1)
        orders.send(child)
        ended = os.pidfd_open(child)
        if orders in wait([orders, ended]):  # whoever asked for it is gone
            os.kill(child, signal.SIGKILL)
        os.close(ended)
        orders.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _serve(app: FastAPI, listening: socket.socket, log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    # A connection is kept while a machine pauses: whoever asks has looked at a clock before.
    config = uvicorn.Config(app, log_level="warning", timeout_keep_alive=int(PATIENCE))
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    serve(int(sys.argv[1]))
