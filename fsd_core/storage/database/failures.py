"""Errors of database drivers as sentences."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm.exc import StaleDataError

from fsd_core.addresses import without_secrets
from fsd_core.errors import DatabaseUnavailable, DataDamaged, FsdError

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
