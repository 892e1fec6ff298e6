"""Alembic's entry: the program hands over a connection; the `alembic` command opens the configured database."""

from __future__ import annotations

from typing import Literal

from alembic import context
from sqlalchemy import Connection, create_engine

from fsd_core.settings import get_settings
from fsd_core.storage.opening import parse
from fsd_core.storage.tables import Base, Utc


def render_item(kind: str, value: object, _autogen_context: object) -> str | Literal[False]:
    """Migrations outlive the program's types, so they name SQLAlchemy's own."""
    return "sa.DateTime(timezone=True)" if kind == "type" and isinstance(value, Utc) else False


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        render_item=render_item,
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


handed_over = context.config.attributes.get("connection")
if handed_over is not None:
    run(handed_over)
else:
    with create_engine(parse(get_settings().resolved_database_url)).begin() as opened:
        run(opened)
