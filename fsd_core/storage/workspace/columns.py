"""Table rows as plain JSON data, and back, for any database."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, Boolean, Column, DateTime, Float, Integer, LargeBinary, String, Table

from fsd_core.storage.database.connection import storable
from fsd_core.storage.database.tables import Base

LOCAL_COLUMNS = {"mlflow_run_id", "mlflow_synced_at", "key"}
"""columns about this installation, which are not exported"""
_LARGEST_INTEGER = 2**31 - 1


def names(model: type[Base], *but: str) -> list[str]:
    """Return the names of the exported columns, without those in ``but``."""
    return [
        column.name for column in model.__table__.columns if column.name not in LOCAL_COLUMNS and column.name not in but
    ]


def row_values(row: Base, *but: str) -> dict[str, Any]:
    """Return the exported columns of a row, without those in ``but``."""
    return {name: getattr(row, name) for name in names(type(row), *but)}


def plain(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Return columns as JSON data: times in UTC as ISO 8601, bytes in base 64."""
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def read_row(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """Invert :func:`plain` for a row of a reflected table. Raises ``ValueError``, which names the column."""
    columns = {column.name: column for column in table.columns if column.name not in LOCAL_COLUMNS}
    if unknown := set(row) - set(columns):
        raise ValueError(f"{table.name} has no column {min(unknown)[:40]!r}")
    return {name: _read(table.name, column, row.get(name)) for name, column in columns.items()}


def _read(table: str, column: Column[Any], value: Any) -> Any:
    if value is None:
        if column.nullable:
            return None
    elif isinstance(column.type, JSON):
        if isinstance(value, dict):
            return storable(value)
    elif isinstance(column.type, Boolean):
        if isinstance(value, bool):
            return value
    elif isinstance(column.type, Integer):
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_INTEGER:
            return value
    elif isinstance(column.type, Float):
        if isinstance(value, int | float) and not isinstance(value, bool):
            return storable(float(value))
    elif isinstance(value, str):
        return _read_text(table, column, value)
    raise ValueError(f"{column.name} of a row of {table} is not what that column holds")


def _read_text(table: str, column: Column[Any], value: str) -> Any:
    try:
        if isinstance(column.type, DateTime):
            return datetime.fromisoformat(value).astimezone(UTC).replace(tzinfo=None)  # as SQLite stores it
        if isinstance(column.type, LargeBinary):
            return base64.b64decode(value, validate=True)
    except (ValueError, OverflowError):
        raise ValueError(f"{column.name} of a row of {table} cannot be read") from None
    assert isinstance(column.type, String), f"a column of the unknown kind {column.type!r}"
    if column.type.length is not None and len(value) > column.type.length:
        raise ValueError(f"{column.name} of a row of {table} has more than {column.type.length} characters")
    return storable(value)
