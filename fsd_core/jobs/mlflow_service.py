"""MLflow's pages as a service of the web process, which imports no mlflow."""

from __future__ import annotations

import contextlib
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import make_url

from fsd_core.jobs import lock
from fsd_core.jobs.service import Service

if TYPE_CHECKING:
    from fsd_core.settings import Settings


def mlflow_service(settings: Settings, environment: dict[str, str]) -> Service:
    """MLflow's server on loopback over our own store: one process that serves, no job runner."""
    path = settings.home / "mlflow.lock"
    port = (lock.holder(path) or {}).get("port") or free_port(settings.mlflow_port)
    store, artifacts = _store(settings)
    command = (sys.executable, "-m", "fsd_core.jobs.mlflow_server", str(port), str(artifacts))
    environment = {**environment, "MLFLOW_BACKEND_STORE_URI": store, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return Service("MLflow", command, path, settings.home / "logs" / "mlflow.log", environment, port)


def _store(settings: Settings) -> tuple[str, Path]:
    """The store's URI, which means the same in every working directory, and the folder of its artifacts."""
    uri = settings.resolved_mlflow_uri
    if not uri.startswith("sqlite"):
        return uri, settings.mlflow_folder / "artifacts"
    url = make_url(uri)
    file = Path(str(url.database)).absolute()
    return url.set(database=str(file)).render_as_string(hide_password=False), file.parent / "artifacts"


def free_port(first: int) -> int:
    """The first port from ``first`` on that nothing on this machine's loopback listens on."""
    for port in range(first, min(first + 200, 65536)):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError(f"No port from {first} to {first + 199} is free.")
