"""The schema's version: checked when a database is opened, changed by Alembic alone."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, text

from fsd_core.errors import DatabaseOutdated, DatabaseUnavailable
from fsd_core.tracking.database.failures import redacted

_PACKAGE = Path(__file__).resolve().parents[2]
# Inside the package where it is installed, beside it in a checkout.
SCRIPTS = next(folder for folder in (_PACKAGE / "migrations", _PACKAGE.parent / "migrations") if folder.is_dir())
COMMAND = "python -m fsd_core db upgrade"
_UPGRADE_LOCK = 0x465344  # any number, as long as all processes use the same


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration; the connection is handed to ``migrations/env.py``."""
    alembic = Config()
    alembic.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    alembic.attributes["connection"] = connection
    return alembic


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(config())


def head() -> str:
    """The revision that this version of the program works with."""
    revision = _scripts().get_current_head()
    assert revision is not None, "migrations/versions is empty"
    return revision


def missing(url: URL) -> DatabaseOutdated:
    where = url.database if url.get_backend_name() == "sqlite" else redacted(url)
    return DatabaseOutdated(f"There is no FSD Lab database at {where} yet: create it with `{COMMAND}`.")


def check(connection: Connection) -> None:
    """Raises ``DatabaseOutdated`` unless the database stands at this program's revision."""
    revision = MigrationContext.configure(connection).get_current_revision()
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
    """Raises ``DatabaseOutdated`` for a revision that this program does not know."""
    if revision is not None and revision not in {script.revision for script in _scripts().walk_revisions()}:
        raise DatabaseOutdated(
            f"The database is at revision {revision}, which this version of FSD Lab does not know: "
            f"it was made by a newer one. Update FSD Lab, then run `{COMMAND}`."
        )


def migrate(connection: Connection) -> None:
    """Runs the migrations inside the connection's transaction, one process at a time."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
    check_known(MigrationContext.configure(connection).get_current_revision())
    command.upgrade(config(connection), "head")


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(
            f"The folder {folder} cannot be made ({error.strerror}): make its parent writable, or set FSD_HOME."
        ) from error
