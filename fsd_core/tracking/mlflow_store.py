"""Connection to MLflow's store with short timeouts, and its one-time preparation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from fsd_core.addresses import without_secrets
from fsd_core.errors import FsdError, TrackingUnavailable
from fsd_core.settings import Settings, get_settings
from fsd_core.tracking.mlflow_creation import create_store
from fsd_core.tracking.mlflow_schema import check_schema

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "FSD Lab"
STORE_PATIENCE = 3  # seconds
LIMITS = {  # MLflow's defaults are two minutes and seven tries; values set by the user stay
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(STORE_PATIENCE),
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
}


def prepare_store(settings: Settings) -> None:
    """Create MLflow's folder, tables and experiment, so that no later step waits for them.

    Takes about six seconds the first time. Raises ``TrackingUnavailable``.
    """
    connect(settings.resolved_mlflow_uri)


def connect(uri: str) -> tuple[MlflowClient, str]:
    """Return a client and the id of the experiment that contains all runs. Raises ``TrackingUnavailable``."""
    for name, value in LIMITS.items():
        os.environ.setdefault(name, value)
    with reached(uri):
        if root := artifact_root(uri):
            create_store(uri, root)
        check_database(uri)
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            return client, client.create_experiment(EXPERIMENT, artifact_location=root.as_uri() if root else None)
        if experiment.lifecycle_stage != "active":
            client.restore_experiment(experiment.experiment_id)
        return client, experiment.experiment_id


@contextmanager
def reached(uri: str) -> Iterator[None]:
    """Raise ``TrackingUnavailable`` for every error of the store or the server in the block."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except FsdError:  # such as an error of our own database
        raise
    except (MlflowException, SQLAlchemyError, OSError) as error:  # requests' errors are OSErrors
        raise TrackingUnavailable(f"MLflow at {without_secrets(uri)} {_error_text(error)}") from error


def _error_text(error: BaseException) -> str:
    """Return the rest of the error message, named by its cause. MLflow's own messages quote internals of its
    libraries."""
    from mlflow.exceptions import MlflowException
    from requests.exceptions import ConnectionError, Timeout

    chain = list(_causes(error))
    # psycopg gives no SQLSTATE for a server that it cannot reach.
    unreached = any(isinstance(cause, DBAPIError) and getattr(cause.orig, "sqlstate", "") is None for cause in chain)
    if unreached or any(isinstance(cause, ConnectionError | Timeout) for cause in chain):
        return "does not answer, so runs are mirrored later: check that it runs and that FSD_MLFLOW_URI is right."
    reasons = (_reason(cause) for cause in chain if not isinstance(cause, MlflowException))
    code = getattr(error, "error_code", type(error).__name__)  # such as PERMISSION_DENIED
    reason = next(filter(None, reasons), str(code).replace("_", " ").lower())
    return f"cannot be used ({reason}), so runs are mirrored later: check that it is MLflow's and may be written to."


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes; MLflow wraps the errors of others in its own."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reason(cause: BaseException) -> str:
    """Return the short message of a database driver or the system; empty for other errors."""
    message = cause.orig if isinstance(cause, DBAPIError) else cause.strerror if isinstance(cause, OSError) else None
    return str(message or "").strip().partition("\n")[0][:200]


def _is_database(uri: str) -> bool:
    return uri.split(":", 1)[0].split("+")[0] in ("sqlite", "postgresql", "mysql", "mssql")


def check_database(uri: str) -> None:
    """Open the store once, because MLflow itself would retry for minutes, and check its schema."""
    if not _is_database(uri):
        return
    url = make_url(uri)
    sqlite = url.get_backend_name() == "sqlite"
    if sqlite:
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        url, connect_args={"timeout": STORE_PATIENCE} if sqlite else {"connect_timeout": STORE_PATIENCE}
    )
    try:
        with engine.connect() as connection:
            if sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                connection.exec_driver_sql("PRAGMA user_version = 0")  # fails on a read-only store, changes nothing
            check_schema(connection, without_secrets(uri))
    finally:
        engine.dispose()


def artifact_root(uri: str) -> Path | None:
    """Return the folder of artifacts: beside a SQLite store, or in the home for another database. ``None`` for a
    server, which has its own."""
    if not _is_database(uri):
        return None
    if uri.startswith("sqlite"):
        return Path(str(make_url(uri).database)).absolute().parent / "artifacts"
    return get_settings().mlflow_folder / "artifacts"
