"""MLflow's pages as a service of the web process, which does not import mlflow: how to start, find and read them.

They listen on a Unix socket in a folder that only its owner can open. So nobody else on the machine bypasses the
sign-in, and no port is needed. The holder of ``mlflow.lock`` records the socket's path in it.
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
GRAPHQL = "/graphql"
MLFLOW_READ_PATHS = {
    "GET": (
        r"/|/health|/version|/get-artifact",
        r"/static-files/(?!.*\.\.)[\w.@~/-]+",
        rf"{_API}/experiments/(get|get-by-name|search)",
        rf"{_API}/(runs/get|artifacts/list|metrics/get-history(-bulk|-bulk-interval)?)",
        rf"{_API}/(registered-models|model-versions)/search",
        r"/ajax-api/3.0/mlflow/server-info",
        r"/ajax-api/2.0/mlflow/gateway-proxy",  # requested by every list of runs; answers that no gateway exists
    ),
    "POST": (  # queries too long for a URL
        GRAPHQL,  # of its documents, queries alone (fsd_core/worker/mlflow_server.py)
        rf"{_API}/(experiments/(search|search-datasets)|runs/search|logged-models/search)",
        r"/(ajax-)?api/3.0/mlflow/traces/search",
    ),
}
"""Patterns of the MLflow URLs needed to view runs; all others are closed."""


def mlflow_service(settings: Settings, environment: dict[str, str]) -> Service:
    """Return MLflow's server over our own store: one process, no job runner."""
    command = (sys.executable, "-m", "fsd_core.worker.mlflow_server")
    environment = {**environment, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DEPLOYMENTS_TARGET": ""}
    return Service("MLflow", command, settings.home / LOCK, settings.home / "logs" / "mlflow.log", environment)


def mlflow_socket(home: Path) -> str | None:
    """Return the socket of a home's MLflow pages, or ``None`` while they are down."""
    return (lock.holder(home / LOCK) or {}).get("socket")


def mlflow_problem(home: Path) -> str | None:
    """Return the reason why a home's MLflow pages cannot be served, or ``None``."""
    return (lock.holder(home / LOCK) or {}).get("problem")
