"""Opening the database: one engine, one kind of session, errors as sentences, and the schema's version.

The schema's version: checked when a database is opened, changed only by Alembic.

Alembic takes half a second to import, and an up-to-date database does not need it.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import uuid4

from sqlalchemy import (
    URL,
    Connection,
    CursorResult,
    DateTime,
    Engine,
    Executable,
    create_engine,
    event,
    func,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from fsd_core.errors import DatabaseOutdated, DatabaseUnavailable, DataDamaged, FsdError, Misconfigured, UnknownName
from fsd_core.storage.tables import Base, now
from fsd_core.texts import whole, without_secrets

if TYPE_CHECKING:
    from alembic.config import Config


_RESTORE = "restore it from a backup (`python -m fsd_core db restore FILE`), or move it away and create a new one"
_SQLITE = {
    sqlite3.SQLITE_BUSY: "is locked by another process: close what else has it open, then try again",
    sqlite3.SQLITE_LOCKED: "is locked by another process: close what else has it open, then try again",
    sqlite3.SQLITE_READONLY: "is read-only: make the file and its folder writable, or choose another with FSD_HOME",
    sqlite3.SQLITE_PERM: "may not be opened: make the file and its folder readable and writable",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: check that the path is a file in a writable folder",
    sqlite3.SQLITE_FULL: "cannot grow because the disk is full: free some space, then try again",
    sqlite3.SQLITE_IOERR: "cannot be read or written because of a disk error: check the disk, then try again",
    sqlite3.SQLITE_CORRUPT: f"is damaged: {_RESTORE}",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database: move the file away, or choose another with FSD_HOME",
}

_LACKING = (
    "lacks tables of FSD Lab: it was emptied, or belongs to another program. Restore it from a backup, or choose "
    "another and prepare that one with `python -m fsd_core db upgrade`"
)
_FOREIGN = "has tables of another program under the names of ours: choose another with FSD_DATABASE_URL"
_SQLITE_MESSAGES = {  # SQLite has one code, SQLITE_ERROR, for all errors in a statement
    r"no such (table|column)\b|table \S+ has no column": _LACKING,
    # A row written or read in the same transaction can be missing only because of damaged pages.
    r"Could not decode to UTF-8|malformed (JSON|database schema)|FOREIGN KEY constraint": f"is damaged: {_RESTORE}",
    r"table \S+ already exists\b": _FOREIGN,
}

_POSTGRES = {  # by SQLSTATE, or by its class
    "25006": "is read-only: connect to the primary server, or grant this user the right to write",
    "42501": "refuses this user: grant it the right to read and write the tables",
    "28": "refuses this user or password: check FSD_DATABASE_URL",
    "3D000": "does not exist: create it with createdb, then run `python -m fsd_core db upgrade`",
    "53100": "cannot grow because the disk is full: free some space, then try again",
    "53300": "has no free connection: close some, or raise max_connections",
    "57014": "was not allowed the time that a statement took: raise statement_timeout for this user, then try again",
    "55P03": "is locked by another process: close what else has it open, then try again",
    "42P01": _LACKING,
    "42P07": _FOREIGN,
    "40": "was asked for the same rows by another process at once: try again",
    "XX001": "is damaged: restore it from a backup",
}


_AT_THE_DOOR = {  # while connecting, PostgreSQL's driver has no code
    "28": r"authentication failed|role .* does not exist|no pg_hba.conf entry|no password supplied",
    "3D000": r"database .* does not exist|no such database",
    "53300": r"too many (clients|connections)|remaining connection slots",
}


def sentence(error: DBAPIError, url: URL) -> str | None:
    """Return the cause and a remedy; ``None`` for a bug of the program, not a problem of its environment."""
    name = _database_label(url)
    original = error.orig
    if isinstance(original, sqlite3.Error):
        # The low byte is the primary code. The rest distinguishes its variants.
        code = getattr(original, "sqlite_errorcode", 0) & 0xFF
        matches = (message for pattern, message in _SQLITE_MESSAGES.items() if re.match(pattern, str(original)))
        message = _SQLITE.get(code) or next(matches, None)
        return f"{name} {message}." if message else None
    said = str(original).strip()
    found = (state for state, pattern in _AT_THE_DOOR.items() if re.search(pattern, said))
    state = getattr(original, "sqlstate", None) or next(found, "")
    for length in (5, 2):
        if state[:length] in _POSTGRES:
            return f"{name} {_POSTGRES[state[:length]]}."
    if isinstance(error, OperationalError | InterfaceError):
        reason = without_secrets(said.partition("\n")[0].rpartition("failed: ")[2][:200]) or type(original).__name__
        return f"{name} does not answer ({reason}): check that it runs, and that FSD_DATABASE_URL is right."
    return None


def _database_label(url: URL) -> str:
    return f"The database {url.database if url.get_backend_name() == 'sqlite' else redacted(url)}"


def redacted(url: URL) -> str:
    return without_secrets(url.render_as_string(hide_password=False))


@contextmanager
def explained(url: URL) -> Iterator[None]:
    """Raise ``DatabaseUnavailable`` for a driver's error that a user can fix, and ``DataDamaged`` for an error in
    reading a damaged value."""
    try:
        yield
    except (FsdError, UnicodeEncodeError):
        raise
    except (ValueError, TypeError, LookupError, AttributeError, StaleDataError) as error:
        raise DataDamaged(f"{_database_label(url)} holds a value that cannot be read: {_RESTORE}.") from error
    except PoolTimeout:
        raise DatabaseUnavailable(f"The database {redacted(url)} is too busy: try again in a moment.") from None
    except DBAPIError as error:
        message = sentence(error, url)
        if message is None:
            raise
        raise DatabaseUnavailable(message) from error


_PACKAGE = Path(__file__).resolve().parents[1]
# Inside the package if installed, next to it in a checkout.
SCRIPTS = next(folder for folder in (_PACKAGE / "migrations", _PACKAGE.parent / "migrations") if folder.is_dir())
COMMAND = "python -m fsd_core db upgrade"
_UPGRADE_LOCK = 0x465344  # any number, as long as all processes use the same


def config(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration. It passes the connection to ``migrations/env.py``."""
    from alembic.config import Config

    alembic = Config()
    alembic.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    alembic.attributes["connection"] = connection
    return alembic


@cache
def revisions() -> tuple[str, ...]:
    """Return the revisions that this version of the program knows, first to last, from their files' names."""
    return tuple(sorted(file.name.partition("_")[0] for file in (SCRIPTS / "versions").glob("[0-9]*_*.py")))


def head() -> str:
    """Return the revision that this version of the program works with."""
    return revisions()[-1]


def current(connection: Connection) -> str | None:
    """Return the revision of a database, or ``None`` if it has none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def missing(url: URL) -> DatabaseOutdated:
    where = url.database if url.get_backend_name() == "sqlite" else redacted(url)
    return DatabaseOutdated(f"There is no FSD Lab database at {where} yet: create it with `{COMMAND}`.")


def check(connection: Connection) -> None:
    """Raise ``DatabaseOutdated`` unless the database is at this program's revision."""
    revision = current(connection)
    if revision == head():
        return
    if revision is None:
        raise missing(connection.engine.url)
    check_known(revision)
    raise DatabaseOutdated(
        f"The database is at revision {revision}, this version of FSD Lab needs {head()}: "
        f"stop the app and run `{COMMAND}`."
    )


def check_known(revision: str | None) -> None:
    """Raise ``DatabaseOutdated`` for a revision that this program does not know."""
    if revision is not None and revision not in revisions():
        raise DatabaseOutdated(
            f"The database is at revision {revision}, which this version of FSD Lab does not know: "
            f"it was made by a newer one. Update FSD Lab, then run `{COMMAND}`."
        )


def migrate(connection: Connection, to: str | None = None) -> None:
    """Run the migrations in the connection's transaction, one process at a time.

    ``to``: an earlier revision, for data written at that one.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        if (encoding := connection.execute(text("SHOW server_encoding")).scalar()) != "UTF8":
            raise DatabaseUnavailable(
                f"The database {redacted(connection.engine.url)} keeps its texts in {encoding}, which cannot hold "
                "every prompt: create one with `createdb --encoding=UTF8 --template=template0 NAME`."
            )
    revision = current(connection)
    check_known(revision)
    if revision == (to or head()):
        return
    from alembic import command

    command.upgrade(config(connection), to or "head")


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(
            f"The folder {folder} cannot be made ({error.strerror}): make its parent writable, or set FSD_HOME."
        ) from error


BUSY_TIMEOUT = 10.0
CONNECT_TIMEOUT = 5


class Database:
    """A checked database. Sessions may be opened from any thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._reader = engine.execution_options(readonly=True)

    @contextmanager
    def session(self, *, readonly: bool = False) -> Iterator[Session]:
        """Yield a session in one transaction: committed at the end, rolled back on any error.

        A writing session takes SQLite's write lock at once, so that it waits for its turn instead of failing half-way.
        A ``readonly`` session takes none and lets others write. Raises ``DatabaseUnavailable``.
        """
        engine = self._reader if readonly else self.engine
        with explained(self.engine.url), Session(engine, expire_on_commit=False) as session, session.begin():
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
        raise missing(parsed)  # SQLite would create an empty file
    engine = _engine(parsed, busy_timeout)
    try:
        with explained(parsed), engine.execution_options(readonly=True).connect() as connection:
            check(connection)
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
        make_folder(path.parent)
    # Rebuilding a table on SQLite drops the old one. With foreign keys on, this would delete the rows that refer to it.
    engine = _engine(parsed, busy_timeout, foreign_keys=False)
    try:
        with explained(parsed), engine.begin() as connection:
            migrate(connection, to)
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


Row = TypeVar("Row", bound=Base)


class Store:
    def __init__(self, database: Database) -> None:
        self._database = database


def new_id() -> str:
    return uuid4().hex


def moment_of(session: Session) -> datetime:
    """Return the time by the database's clock, by which leases and heartbeats of several machines are judged."""
    if session.get_bind().dialect.name != "postgresql":
        return now()  # the file's machine is this one
    return session.scalars(select(func.clock_timestamp(type_=DateTime(timezone=True)))).one()


def get_row(session: Session, model: type[Row], id: str | int, what: str) -> Row:
    """Return the row with this key. Raises ``UnknownName``."""
    row = session.get(model, id)
    if row is None:
        raise unknown(what, id)
    return row


def unknown(what: str, id: str | int) -> UnknownName:
    return UnknownName(f"There is no {what} '{id}': it was deleted, or the link is incomplete.")


def dialect_insert(session: Session, model: type[Base]) -> sqlite.Insert | postgresql.Insert:
    """Return an INSERT that can say what to do if the row exists, even since this very moment."""
    return {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[session.get_bind().dialect.name](model)


def changed(session: Session, statement: Executable) -> int:
    """Run an UPDATE or DELETE, and return how many rows it touched."""
    return cast("CursorResult[Any]", session.execute(statement)).rowcount
