"""MLflow's pages over our own store, read-only.

MLflow's pages over our own store: ``python -m fsd_core.worker.mlflow_server``, with ``FSD_*`` variables.

MLflow's own server has no login. Anybody who reaches it can change everything and have files read and written anywhere.
Ours listens on a socket that only its owner can open, and only allows viewing of runs. The web process in front of it
(:mod:`dashboard.server.mlflow_pages`) admits signed-in users.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from graphql import GraphQLError, OperationDefinitionNode, OperationType, parse
from sqlalchemy import make_url
from starlette.types import ASGIApp, Receive, Scope, Send

from fsd_core import system
from fsd_core.errors import TrackingUnavailable
from fsd_core.middleware import AllowList, BoundedBody, bound_log_lines, refuse, replayed
from fsd_core.settings import Settings, get_settings, sqlite_url
from fsd_core.tracking import check_database, create_store, reached
from fsd_core.worker.supervisor import GRAPHQL, LOCK, MLFLOW_READ_PATHS, SUPERVISED

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository


_LONGEST_DOCUMENT, _MOST_TOKENS = 100_000, 5_000
"""characters; names, values and signs in them"""
NOT_A_QUERY = "MLflow's pages are for reading: expected one GraphQL document that holds queries alone."


class QueriesAlone:
    """Refuses GraphQL that mutates or subscribes, and what cannot be read as JSON with a document."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != GRAPHQL:
            return await self.app(scope, receive, send)
        body = (await receive()).get("body", b"")  # whole, see BoundedBody
        receive = replayed(body, receive)
        if not asks_only(body):
            return await refuse(receive, send, 403, NOT_A_QUERY)
        return await self.app(scope, receive, send)


def asks_only(body: bytes) -> bool:
    """Whether a request's body holds a document whose operations are queries."""
    try:
        document = json.loads(body)["query"]
        if not isinstance(document, str) or len(document) > _LONGEST_DOCUMENT:
            return False
        operations = [
            part
            for part in parse(document, no_location=True, max_tokens=_MOST_TOKENS).definitions
            if isinstance(part, OperationDefinitionNode)
        ]
    except (ValueError, TypeError, KeyError, RecursionError, GraphQLError):
        return False
    return bool(operations) and all(part.operation == OperationType.QUERY for part in operations)


logger = logging.getLogger(__name__)

RETRY = 2.0  # seconds until a store that could not be used is looked at again


def serve_artifacts_of(folder: Path) -> None:
    """Restrict MLflow to artifacts in ``folder``, whatever location a run names."""
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
    from mlflow.store.artifact.artifact_repository_registry import get_registered_artifact_repositories
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    root = folder.resolve()

    def repository(artifact_uri: str, **options: str | None) -> ArtifactRepository:
        artifacts = LocalArtifactRepository(artifact_uri, **options)
        if not Path(artifacts.artifact_dir).resolve().is_relative_to(root):
            raise MlflowException("These artifacts lie outside of the store and are not shown.", PERMISSION_DENIED)
        return artifacts

    registered: dict[str, Any] = get_registered_artifact_repositories()
    registered.clear()  # with other schemes the server would connect to hosts that a run names
    registered.update({"": repository, "file": repository})


def build_app(store: str, artifacts: Path) -> ASGIApp:
    """Return MLflow's application over a store, restricted to reading."""
    from mlflow.server.constants import ARTIFACT_ROOT_ENV_VAR, BACKEND_STORE_URI_ENV_VAR
    from mlflow.server.fastapi_app import app
    from mlflow.server.handlers import initialize_backend_stores

    os.environ[BACKEND_STORE_URI_ENV_VAR], os.environ[ARTIFACT_ROOT_ENV_VAR] = store, artifacts.as_uri()
    initialize_backend_stores(store, store, artifacts.as_uri())
    serve_artifacts_of(artifacts)
    return AllowList(BoundedBody(QueriesAlone(app)), MLFLOW_READ_PATHS)


def wait_for_store(store: str, artifacts: Path, report: Callable[[str], None]) -> None:
    """Create the store, or wait until the existing one can be used. ``report`` is told what is wrong with it."""
    told = ""
    while True:
        try:
            with reached(store):
                create_store(store, artifacts)
                return check_database(store)
        except TrackingUnavailable as error:
            if str(error) != told:
                logger.warning("%s", error)
                report(told := str(error))
            time.sleep(RETRY)


def _store(settings: Settings) -> tuple[str, Path]:
    """Return the store's URI, valid in every working directory, and the folder of its artifacts."""
    uri = settings.resolved_mlflow_uri
    if not uri.startswith("sqlite"):
        return uri, settings.mlflow_folder / "artifacts"
    file = Path(str(make_url(uri).database)).absolute()
    return sqlite_url(file, "sqlite+pysqlite"), file.parent / "artifacts"


def serve(settings: Settings, server_lock: system.Lock) -> None:
    """Serve until SIGTERM. The lock file names the socket, or what is wrong with the store."""
    about = {"pid": os.getpid(), "supervised": SUPERVISED in os.environ}
    server_lock.write_metadata(**about)
    if old_socket := server_lock.previous_metadata.get("socket"):  # of a server that was killed
        with suppress(OSError):
            Path(old_socket).unlink()
            Path(old_socket).parent.rmdir()
    store, artifacts = _store(settings)
    artifacts.mkdir(parents=True, exist_ok=True)
    os.chdir(artifacts.parent)  # base of every relative path that MLflow writes to
    wait_for_store(store, artifacts, lambda problem: server_lock.write_metadata(**about, problem=problem))
    app = build_app(store, artifacts)
    # Not in the home: socket paths must be short, and network or bucket file systems have no sockets.
    short = None if len(os.fsencode(tempfile.gettempdir())) < 70 else "/tmp"
    with (
        tempfile.TemporaryDirectory(prefix="fsd-pages-", dir=short) as folder,  # readable by its owner only
        socket.socket(socket.AF_UNIX) as listener,
    ):
        listener.bind(path := f"{folder}/mlflow")
        listener.listen(128)
        server_lock.write_metadata(**about, socket=path)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3)).run(sockets=[listener])


def main() -> None:
    bound_log_lines()
    # uvicorn stops on this signal and then raises it again: exit normally, so that the files are cleaned up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = get_settings()
    if (server_lock := system.acquire(settings.home / LOCK)) is None:
        sys.exit(f"MLflow's pages of {settings.home} are served already.")
    try:
        serve(settings, server_lock)
    finally:
        server_lock.close()


if __name__ == "__main__":
    main()
