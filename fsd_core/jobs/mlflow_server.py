"""MLflow's pages over our own store: ``python -m fsd_core.jobs.mlflow_server PORT ARTIFACTS``.

MLflow's own server has no login, and lets every program and page of this machine change everything and have files read
and written anywhere. Behind these guards people look at runs, compare, rename, tag, describe, delete and restore them.
The store's URI is in ``MLFLOW_BACKEND_STORE_URI``: it may hold a password, and a command line is everybody's to read.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp

from fsd_core.asgi.allow_list import AllowList
from fsd_core.asgi.body import BoundedBody
from fsd_core.asgi.logs import bound_log_lines
from fsd_core.asgi.origin import SameOrigin
from fsd_core.tracking.mlflow_creation import create_store

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

HOSTS = ["localhost", "127.0.0.1", "[::1]"]
_API = "/(ajax-)?api/2.0/mlflow"
_OPEN = {
    "GET": (
        r"/|/static-files/.+|/health|/version|/get-artifact",
        rf"{_API}/experiments/(get|get-by-name|search)",
        rf"{_API}/(runs/get|artifacts/list|metrics/get-history(-bulk|-bulk-interval)?)",
        rf"{_API}/(registered-models|model-versions)/search",
        r"/ajax-api/3.0/mlflow/server-info",
    ),
    "POST": (
        r"/graphql",  # MLflow's has queries alone
        rf"{_API}/(experiments/(search|search-datasets)|runs/search|logged-models/search)",
        r"/(ajax-)?api/3.0/mlflow/traces/search",
        rf"{_API}/runs/(update|delete|restore|set-tag|delete-tag)",
        rf"{_API}/experiments/(update|delete|restore|set-experiment-tag|delete-experiment-tag)",
    ),
}


def guarded(app: ASGIApp) -> ASGIApp:
    """The application behind the guards."""
    return TrustedHostMiddleware(AllowList(SameOrigin(BoundedBody(app)), _OPEN), HOSTS)


def serve_artifacts_of(folder: Path) -> None:
    """From now on MLflow finds artifacts in ``folder`` alone, wherever a run says that its own are."""
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
    from mlflow.store.artifact.artifact_repository_registry import get_registered_artifact_repositories
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    root = folder.resolve()

    def repository(artifact_uri: str, **options: str | None) -> ArtifactRepository:
        found = LocalArtifactRepository(artifact_uri, **options)
        if not Path(found.artifact_dir).resolve().is_relative_to(root):
            raise MlflowException("These artifacts lie outside of the store and are not shown.", PERMISSION_DENIED)
        return found

    registered: dict[str, Any] = get_registered_artifact_repositories()
    registered.clear()  # other schemes would have the server connect to hosts that a run names
    registered.update({"": repository, "file": repository})


def build_app(store: str, artifacts: Path) -> ASGIApp:
    """MLflow's application over a store, guarded."""
    from mlflow.server.constants import ARTIFACT_ROOT_ENV_VAR, BACKEND_STORE_URI_ENV_VAR
    from mlflow.server.fastapi_app import app
    from mlflow.server.handlers import initialize_backend_stores

    os.environ[BACKEND_STORE_URI_ENV_VAR], os.environ[ARTIFACT_ROOT_ENV_VAR] = store, artifacts.as_uri()
    create_store(store, artifacts)
    initialize_backend_stores(store, store, artifacts.as_uri())
    serve_artifacts_of(artifacts)
    return guarded(app)


def main(port: str, artifacts: str) -> None:
    bound_log_lines()
    folder = Path(artifacts)
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder.parent)  # whatever MLflow writes by a relative path belongs there
    app = build_app(os.environ["MLFLOW_BACKEND_STORE_URI"], folder)
    uvicorn.run(app, port=int(port), log_level="warning", timeout_graceful_shutdown=3)


if __name__ == "__main__":
    main(*sys.argv[1:])
