"""The schema's version: checked when a database is opened, changed only by Alembic.

Alembic takes half a second to import, and an up-to-date database does not need it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import URL, Connection, inspect, text

from fsd_core.errors import DatabaseOutdated, DatabaseUnavailable
from fsd_core.storage.database.failures import redacted

if TYPE_CHECKING:
    from alembic.config import Config

_PACKAGE = Path(__file__).resolve().parents[2]
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
