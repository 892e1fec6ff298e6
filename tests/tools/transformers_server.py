"""transformers' own server, with the bundled target: an engine that others wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from engines.served_pair import write_pair
from tests.tools.worker_process import free_port, until


@contextmanager
def serving_bundled_target(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the address of a server and its model's name; it says on standard error what it does."""
    write_pair("bundled", folder)
    model, port = str(folder / "target"), free_port(8600)
    command = [Path(sys.executable).with_name("transformers"), "serve", model, "--port", str(port)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([*command, "--device", "cpu", "--dtype", "float32"], env=environment) as server:
        try:
            root = f"http://127.0.0.1:{port}"

            def is_ready() -> bool:
                assert server.poll() is None, "transformers' server ended: its last words are above."
                try:
                    return httpx.get(f"{root}/health", trust_env=False).is_success
                except httpx.TransportError:
                    return False

            until(is_ready, "transformers' server")
            yield f"{root}/v1", model
        finally:
            server.kill()
