"""Opening the database: one engine, one kind of session, and errors as sentences."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session

from fsd_core.errors import Misconfigured
from fsd_core.storage.database import schema
from fsd_core.storage.database.failures import explained
from fsd_core.texts import whole

BUSY_TIMEOUT = 10.0
CONNECT_TIMEOUT = 5


class Database:
    """A checked database. Sessions may be opened from any thread. Rows must not leave their session."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._reader = engine.execution_options(readonly=True)

    @contextmanager
    def session(self, *, readonly: bool = False) -> Iterator[Session]:
        """Yield a session in one transaction: committed at the end, rolled back on any error.

        A writing session takes SQLite's write lock at once, so that it waits for its turn instead of failing half-way.
        A ``readonly`` session takes none and lets others write. Raises ``DatabaseUnavailable``.
        """
        with explained(self.engine.url), Session(self._reader if readonly else self.engine) as session, session.begin():
            yield session

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def open_database(url: str, *, busy_timeout: float = BUSY_TIMEOUT) -> Database:
    """Open the database at a SQLAlchemy URL (SQLite or PostgreSQL) and check its schema.

    ``busy_timeout`` is how long, in seconds, to wait for another process that writes. Raises ``DatabaseOutdated`` if
    the database is missing, empty or of another version, ``DatabaseUnavailable`` if it cannot be used.
    """
    parsed = parse(url)
    path = sqlite_path(parsed)
    if path is not None and not path.exists():
        raise schema.missing(parsed)  # SQLite would create an empty file
    engine = _engine(parsed, busy_timeout)
    try:
        with explained(parsed), engine.execution_options(readonly=True).connect() as connection:
            schema.check(connection)
    except BaseException:
        engine.dispose()
        raise
    return Database(engine)


def upgrade(url: str, *, to: str | None = None, busy_timeout: float = BUSY_TIMEOUT) -> None:
    """Create the database and its folders, or migrate its schema to this version or to the revision ``to``.

    All or nothing, and safe to call from two processes at once. Raises ``DatabaseUnavailable``.
    """
    parsed = parse(url)
    path = sqlite_path(parsed)
    if path is not None:
        schema.make_folder(path.parent)
    # Rebuilding a table on SQLite drops the old one. With foreign keys on, this would delete the rows that refer to it.
    engine = _engine(parsed, busy_timeout, foreign_keys=False)
    try:
        with explained(parsed), engine.begin() as connection:
            schema.migrate(connection, to)
    finally:
        engine.dispose()


def parse(url: str) -> URL:
    """Return the URL with its driver named. Raises ``InvalidSetting`` if it is neither SQLite nor PostgreSQL."""
    expected = "expected sqlite:///path/to/file.db or postgresql://user:password@host/name"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise Misconfigured(f"The database URL cannot be read: {expected}.") from None
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise Misconfigured(f"Databases of the kind '{parsed.drivername}' are not supported: {expected}.")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise Misconfigured(f"The database must be a file, for two processes share it: {expected}.")
    return parsed


def sqlite_path(url: URL) -> Path | None:
    """Return the file of a SQLite URL, or ``None`` for PostgreSQL."""
    if url.get_backend_name() != "sqlite":
        return None
    name = str(url.database)
    return Path(name.removeprefix("file:").partition("?")[0] if name.startswith("file:") else name)


def _engine(url: URL, busy_timeout: float, *, foreign_keys: bool = True) -> Engine:
    engine = _of_backend(url, busy_timeout, foreign_keys)

    @event.listens_for(engine, "before_cursor_execute", retval=True)
    def keep_whole(_connection, _cursor, statement: str, parameters: Any, *_) -> tuple[str, Any]:
        return statement, whole(parameters)

    return engine


def storable(value: Any) -> Any:
    """Return the value as a JSON column of every database holds it: its texts whole, its numbers finite or null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {whole(key): storable(item) for key, item in value.items()}
    return [storable(item) for item in value] if isinstance(value, list | tuple) else whole(value)


def _as_json(value: Any) -> str:
    return json.dumps(storable(value))


def _of_backend(url: URL, busy_timeout: float, foreign_keys: bool) -> Engine:
    if url.get_backend_name() != "sqlite":
        try:
            # Nothing outlives a transaction, so that a pooler may hand each one to another server's process.
            options = {"connect_timeout": CONNECT_TIMEOUT, "prepare_threshold": None, "client_encoding": "utf8"}
            return create_engine(url, pool_pre_ping=True, json_serializer=_as_json, connect_args=options)
        except (ImportError, ArgumentError):
            raise Misconfigured(
                f"The driver of '{url.drivername}' is not installed: write postgresql://user:password@host/name, whose "
                "driver comes with FSD Lab, or install that one."
            ) from None
    engine = create_engine(url, json_serializer=_as_json, connect_args={"timeout": busy_timeout})

    @event.listens_for(engine, "connect")
    def configure(connection, _record) -> None:
        connection.isolation_level = None  # BEGIN is sent below, because sqlite3 would send it too late
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        readonly = connection.get_execution_options().get("readonly", False)
        connection.exec_driver_sql("BEGIN" if readonly else "BEGIN IMMEDIATE")

    return engine
