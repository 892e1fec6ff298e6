"""Creation of a new MLflow store in SQLite, as a whole or not at all."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

from sqlalchemy import URL, create_engine, inspect, make_url, text
from sqlalchemy.exc import DBAPIError

from fsd_core.settings import sqlite_url

logger = logging.getLogger(__name__)

CREATION_PATIENCE = 3  # seconds


def create_store(uri: str, artifacts: Path) -> None:
    """Create MLflow's tables, unless ``uri`` is already a store or is no SQLite file.

    MLflow creates them in some fifty steps without a transaction, and permanently refuses a file with half of them. So
    the tables are created in a separate file, which then replaces the store. A store left half-created in place by a
    killed process is moved aside. A lock, which the kernel releases if its process is killed, admits one process at a
    time. Raises ``OSError`` and what MLflow raises.
    """
    url = make_url(uri) if uri.startswith("sqlite") else None
    if url is None or not url.database:
        return
    file = Path(url.database).absolute()
    file.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if file.exists() and file.stat().st_size and not _unfinished(url):
            return
        new = file.with_name(f"{file.name}.new")
        for leftover in (new, new.with_name(f"{new.name}-journal")):
            leftover.unlink(missing_ok=True)
        _create(sqlite_url(new, "sqlite+pysqlite"), artifacts)
        if file.exists() and file.stat().st_size:
            aside = file.with_name(f"{file.name}.unfinished")
            os.replace(file, aside)
            logger.warning("The MLflow store %s was never completed and is now %s; a new one is there.", file, aside)
        os.replace(new, file)
    finally:
        os.close(folder)


def _unfinished(url: URL) -> bool:
    """Whether the file only has some of MLflow's tables, and neither a run nor an experiment, which a complete store
    of an older MLflow has. ``False`` for an unreadable file."""
    engine = create_engine(url, connect_args={"timeout": CREATION_PATIENCE})
    try:
        with engine.connect() as connection:
            tables = set(inspect(connection).get_table_names())
            for table in tables & {"runs", "experiments"}:
                if connection.execute(text(f"SELECT 1 FROM {table} LIMIT 1")).first():
                    return False
            version = None
            if "alembic_version" in tables:
                version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    except DBAPIError:
        return False
    finally:
        engine.dispose()
    from mlflow.store.db.utils import _get_latest_schema_revision
    from mlflow.store.tracking.dbmodels.initial_models import Base as InitialBase
    from mlflow.store.tracking.dbmodels.models import Base

    expected = {*InitialBase.metadata.tables, *Base.metadata.tables}
    foreign = {table for table in tables if table not in expected and not table.startswith(("alembic_", "_alembic_"))}
    return not foreign and version != _get_latest_schema_revision()


def _create(uri: str, artifacts: Path) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(uri, artifacts.as_uri())
    store._dispose_engine()
