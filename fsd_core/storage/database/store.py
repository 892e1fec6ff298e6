"""Base class and helpers of the repository's parts."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar, cast
from uuid import uuid4

from sqlalchemy import CursorResult, DateTime, Executable, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from fsd_core.errors import UnknownName
from fsd_core.storage.database.connection import Database
from fsd_core.storage.database.tables import Base, now

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


def insert(session: Session, model: type[Base]) -> sqlite.Insert | postgresql.Insert:
    """Return an INSERT that can say what to do if the row exists, even since this very moment."""
    return {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[session.get_bind().dialect.name](model)


def changed(session: Session, statement: Executable) -> int:
    """Run an UPDATE or DELETE, and return how many rows it touched."""
    return cast("CursorResult[Any]", session.execute(statement)).rowcount
