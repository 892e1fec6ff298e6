"""MLflow's pages as a service of the web process, which imports no mlflow: how they are started, found, and read.

They listen on a Unix socket in a folder that is its owner's alone, so nobody else on the machine reaches them past the
sign-in, and no port is needed. The holder of ``mlflow.lock`` says in it where the socket is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fsd_core.worker import lock
from fsd_core.worker.service import Service

if TYPE_CHECKING:
    from fsd_core.settings import Settings

LOCK = "mlflow.lock"
_API = "/(ajax-)?api/2.0/mlflow"
MLFLOW_READ_PATHS = {
    "GET": (
        r"/|/health|/version|/get-artifact",
        r"/static-files/(?!.*\.\.)[\w.@~/-]+",
        rf"{_API}/experiments/(get|get-by-name|search)",
        rf"{_API}/(runs/get|artifacts/list|metrics/get-history(-bulk|-bulk-interval)?)",
        rf"{_API}/(registered-models|model-versions)/search",
        r"/ajax-api/3.0/mlflow/server-info",
        r"/ajax-api/2.0/mlflow/gateway-proxy",  # asked by every list of runs; says that there is no gateway
    ),
    "POST": (  # questions that are too long for an address
        r"/graphql",  # MLflow's has queries alone
        rf"{_API}/(experiments/(search|search-datasets)|runs/search|logged-models/search)",
        r"/(ajax-)?api/3.0/mlflow/traces/search",
    ),
}
"""Patterns of MLflow's addresses that people need to look at runs; every other one is closed."""


def mlflow_service(settings: Settings, environment: dict[str, str]) -> Service:
    """MLflow's server over our own store: one process that serves, no job runner."""
    command = (sys.executable, "-m", "fsd_core.worker.mlflow_server")
    environment = {**environment, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DEPLOYMENTS_TARGET": ""}
    return Service("MLflow", command, settings.home / LOCK, settings.home / "logs" / "mlflow.log", environment)


def mlflow_socket(home: Path) -> str | None:
    """Where MLflow's pages of a home listen; ``None`` while they do not."""
    return (lock.holder(home / LOCK) or {}).get("socket")
