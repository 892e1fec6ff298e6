"""Export of a workspace to one file: everything that people made and measured.

Secrets, what belongs to this installation and the worker's unfinished work are left out (accounts, copies in MLflow,
jobs).
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import ColumnElement, false, select
from sqlalchemy.orm import Session

from fsd_core.errors import DataDamaged
from fsd_core.settings import sqlite_url
from fsd_core.storage.database import tables, upkeep
from fsd_core.storage.database.connection import open_database, parse, sqlite_path
from fsd_core.storage.database.tables import (
    ChangeRow,
    EngineReadingRow,
    ExperimentRow,
    GenerationRow,
    MarkRow,
    MeasurementSessionRow,
    OwnPairRow,
    ReportRow,
    ReviewEventRow,
    RunRow,
    SavedViewRow,
    SettingRow,
    TaskRow,
    TraceRow,
    now,
)
from fsd_core.storage.workspace.archive import ArchiveWriter, opened
from fsd_core.storage.workspace.columns import names, plain

TABLES: tuple[type[tables.Base], ...] = (
    OwnPairRow,
    TaskRow,
    SettingRow,
    ExperimentRow,
    RunRow,
    MeasurementSessionRow,
    GenerationRow,
    TraceRow,
    MarkRow,
    EngineReadingRow,
    ReviewEventRow,
    ChangeRow,
    ReportRow,
    SavedViewRow,
)
"""Exported tables, in an order in which none refers to a later one."""
_BATCH = 100  # rows in memory at once


class Exported(NamedTuple):
    """Contents of a file: rows by table, and its size in bytes."""

    rows: dict[str, int]
    size: int


def export(url: str, file: Path, scratch: Path, run_ids: Iterable[str] | None = None) -> Exported:
    """Write the whole workspace, or some runs, to a new file: one consistent snapshot, while others use the database.

    ``scratch`` is a folder with room for a copy of a SQLite database. The file is read back and checked. Raises
    ``InvalidSetting`` if the file exists, ``DatabaseUnavailable`` if there is no room, and ``DataDamaged``.
    """
    selected = None if run_ids is None else list(run_ids)
    with upkeep.new_file(file) as partial:
        with _snapshot(url, scratch) as session:
            writer = ArchiveWriter(partial)
            for model in TABLES:
                writer.add(model.__tablename__, _rows(session, model, selected))
            writer.close(now(), whole=selected is None)
        with opened(partial) as archive:
            for table in archive.manifest.members:
                for _ in archive.rows(table):
                    pass
            rows = {table: member.rows for table, member in archive.manifest.members.items()}
    return Exported(rows, file.stat().st_size)


@contextmanager
def _snapshot(url: str, scratch: Path) -> Iterator[Session]:
    """Yield a session on a snapshot of the database. For SQLite this is a copy, because a long reader blocks
    writers."""
    if sqlite_path(parse(url)) is None:
        database = open_database(url)
        with database.session(readonly=True) as session:
            session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session
        database.close()
        return
    with tempfile.TemporaryDirectory(prefix=".export-", dir=scratch) as folder:
        copy = Path(folder) / "copy.db"
        upkeep.backup(url, copy)
        database = open_database(sqlite_url(copy))
        with database.session(readonly=True) as session:
            yield session
        database.close()


def _rows(session: Session, model: type[tables.Base], selected: list[str] | None) -> Iterator[dict]:
    columns = [model.__table__.columns[name] for name in names(model)]
    statement = select(*columns).order_by(*model.__mapper__.primary_key)
    if selected is not None:
        statement = statement.where(_belongs_to(model, selected))
    for row in session.execute(statement.execution_options(yield_per=_BATCH)).mappings():
        if model is TraceRow and hashlib.sha256(row["data"]).hexdigest() != row["sha256"]:
            raise DataDamaged(
                f"The trace of the generation {row['generation_id']} is damaged, and a file with it could not be "
                "imported: restore the database from a backup, or delete its run."
            )
        yield plain(row)


def _belongs_to(model: type[tables.Base], runs: list[str]) -> ColumnElement[bool]:
    """Return the condition that a row belongs to one of these runs, or that one of them depends on it."""
    if model is OwnPairRow:
        pairs = select(SettingRow.config["pair"].as_string()).join(RunRow).where(RunRow.id.in_(runs))
        return OwnPairRow.models.in_(pairs)
    if model is TaskRow:
        named = select(RunRow.task).where(RunRow.id.in_(runs))
        return (TaskRow.name + "@" + TaskRow.version).in_(named)
    if model is SettingRow:
        return SettingRow.id.in_(select(RunRow.setting_id).where(RunRow.id.in_(runs)))
    if model is ExperimentRow:
        return ExperimentRow.id.in_(select(RunRow.experiment_id).where(RunRow.id.in_(runs)))
    if model is TraceRow:
        return TraceRow.generation_id.in_(select(GenerationRow.id).where(GenerationRow.run_id.in_(runs)))
    if model is RunRow:
        return RunRow.id.in_(runs)
    if model is ChangeRow:
        experiments = select(RunRow.experiment_id).where(RunRow.id.in_(runs))
        return ChangeRow.subject.in_(runs) | ChangeRow.subject.in_(experiments)
    return (
        false() if model in (ReviewEventRow, ReportRow, SavedViewRow) else model.__table__.columns["run_id"].in_(runs)
    )
