"""The application ends at SIGTERM, whatever a request still does."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.tools.sizes import PATIENCE
from tests.tools.worker_process import ROOT

pytestmark = pytest.mark.processes

SERVED = """
import socket, sys, threading, urllib.request
import uvicorn
from fastapi import FastAPI
import app as application

application.LEAVING = 0.5
asked = []

class Services:
    def begin_to_stop(self):
        asked.append(1)
        print("asked to stop", flush=True)

served = FastAPI()

@served.get("/")
def never_ends():
    print("in a request", flush=True)
    threading.Event().wait()

listening = socket.create_server(("127.0.0.1", 0))
url = f"http://127.0.0.1:{listening.getsockname()[1]}"
threading.Thread(target=lambda: urllib.request.urlopen(url), daemon=True).start()
config = uvicorn.Config(served, log_level="critical", timeout_graceful_shutdown=1)
application.Server(config, Services()).run(sockets=[listening])
"""


def test_a_request_that_never_ends_keeps_no_process(capfd: pytest.CaptureFixture[str]) -> None:
    process = subprocess.Popen([sys.executable, "-c", SERVED], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert "in a request\n" in (line for line in lines)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert "asked to stop\n" in list(lines)
    finally:
        process.kill()
        process.communicate()
