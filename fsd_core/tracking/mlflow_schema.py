"""Whether the installed MLflow can work with the tables of a database."""

from __future__ import annotations

import shlex
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from fsd_core.errors import TrackingUnavailable

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory


def check_schema(connection: Connection, name: str) -> None:
    """Raise ``TrackingUnavailable`` unless the database is new or at the revision of the installed MLflow.

    MLflow itself would upgrade a database that lacks one of its newer tables, without a backup. ``name`` is the
    database's URL without secrets.
    """
    if not inspect(connection).has_table("alembic_version"):
        return
    revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if revision is None or revision == _migrations().get_current_head():
        return
    from mlflow.version import VERSION

    if all(migration.revision != revision for migration in _migrations().walk_revisions()):
        raise TrackingUnavailable(
            f"The database {name} has the revision {revision}, which MLflow {VERSION} does not know, so it belongs to "
            "a newer MLflow or to another program: upgrade the package mlflow, or set FSD_MLFLOW_URI to another "
            "database."
        )
    address = shlex.quote(name) if name.startswith("sqlite") else '"$FSD_MLFLOW_URI"'
    raise TrackingUnavailable(
        f"The MLflow database {name} has the schema of an older MLflow (revision {revision}), which MLflow {VERSION} "
        f"cannot use: back it up, then run `mlflow db upgrade {address}`."
    )


@cache
def _migrations() -> ScriptDirectory:
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config

    return ScriptDirectory.from_config(_get_alembic_config(db_url=""))
