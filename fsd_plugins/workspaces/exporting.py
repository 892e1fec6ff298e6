"""Export of a workspace to one file: everything that people made and measured.

The file is a zip of JSON Lines, one member per table, and a manifest that lists them: ``manifest.json`` holds the
version of the format, the revision of the tables, and each member's rows, bytes and SHA-256. Members are read as
streams and never extracted under their names, so that a name in the file does no harm.

Secrets, what belongs to this installation and the worker's unfinished work are left out (accounts, copies in MLflow,
jobs).
"""

from __future__ import annotations

import base64
import hashlib
import json
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, ValidationError
from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    ColumnElement,
    DateTime,
    Float,
    Integer,
    LargeBinary,
    String,
    Table,
    false,
    select,
)
from sqlalchemy.orm import Session

from fsd_core.errors import DataDamaged, FsdError, Unreadable
from fsd_core.frozen import Frozen
from fsd_core.settings import sqlite_url
from fsd_core.storage import opening, tables, upkeep
from fsd_core.storage.opening import open_database, parse, sqlite_path, storable
from fsd_core.storage.tables import (
    Base,
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


_FORMAT = "fsd-lab workspace"
_VERSION = 1
MANIFEST = "manifest.json"
LONGEST_MANIFEST = 1_000_000
LONGEST_ARCHIVE_LINE = 32_000_000
"""bytes of one row, so that no file can fill the memory: read as JSON, a row may take 20 times as many"""
MOST_INFLATED, ALWAYS_INFLATED = 250, 10**9
"""allowed ratio of the members' size to the file's own, which text does not exceed; bytes that are always allowed"""


class Member(Frozen):
    """Expected contents of a table's member."""

    rows: int = Field(ge=0)
    bytes: int = Field(ge=0)
    sha256: str


class Manifest(Frozen):
    """The file's description of itself."""

    format: str
    version: int
    revision: str
    """of the tables that the rows come from"""
    exported_at: datetime
    whole: bool
    """whether it is the whole workspace; otherwise selected runs, without the reviews"""
    members: dict[str, Member]
    """by table"""


class ArchiveWriter:
    """Writes tables one after the other, and the manifest at the end."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._members: dict[str, Member] = {}

    def add(self, table: str, rows: Iterable[dict[str, Any]]) -> None:
        """Add a table with its rows as plain JSON data."""
        digest, size, count = hashlib.sha256(), 0, 0
        with self._zip.open(_member(table), "w", force_zip64=True) as out:
            for row in rows:
                line = json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
                out.write(line)
                digest.update(line)
                size, count = size + len(line), count + 1
        self._members[table] = Member(rows=count, bytes=size, sha256=digest.hexdigest())

    def close(self, exported_at: datetime, whole: bool) -> None:
        manifest = Manifest(
            format=_FORMAT, version=_VERSION, revision=opening.head(), exported_at=exported_at, whole=whole,
            members=self._members,
        )  # fmt: skip
        self._zip.writestr(MANIFEST, json.dumps(manifest.as_json(), indent=2))
        self._zip.close()


class Archive:
    """A file that :func:`opened` has checked."""

    def __init__(self, file: Path, source: zipfile.ZipFile, manifest: Manifest) -> None:
        self._file, self._zip = file, source
        self.manifest = manifest

    @property
    def bytes(self) -> int:
        """Size of all rows."""
        return sum(member.bytes for member in self.manifest.members.values())

    def rows(self, table: str) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the rows of a table, each with its size in bytes.

        Raises ``DataDamaged`` if they are not what was written: at the row that shows it, or after the last one.
        """
        expected, digest, count, size = self.manifest.members[table], hashlib.sha256(), 0, 0
        with self._zip.open(_member(table)) as lines:
            while line := lines.readline(LONGEST_ARCHIVE_LINE + 1):
                digest.update(line)
                size, count = size + len(line), count + 1
                if size > expected.bytes or len(line) > LONGEST_ARCHIVE_LINE:
                    raise damaged(self._file, f"{table} is longer than its manifest says")
                try:
                    row = json.loads(line, parse_constant=_no_number)
                except _NoNumber as error:
                    raise damaged(self._file, f"row {count} of {table} holds {error}, which is no number") from None
                except (ValueError, RecursionError):
                    raise damaged(self._file, f"row {count} of {table} cannot be read") from None
                if not isinstance(row, dict):
                    raise damaged(self._file, f"row {count} of {table} is no row")
                yield row, len(line)
        if Member(rows=count, bytes=size, sha256=digest.hexdigest()) != expected:
            raise damaged(self._file, f"{table} is not what its manifest says")


@contextmanager
def opened(file: Path) -> Iterator[Archive]:
    """Yield the file, with its manifest checked.

    Raises ``InvalidSetting`` if it is no export or from a newer version, and ``DataDamaged``, also from within the
    block, if it is incomplete or changed.
    """
    if file.is_dir():
        raise Unreadable(f"{file} is a folder: name a file that `export` has made.")
    if not file.is_file():
        raise Unreadable(f"There is no file {file}: name one that `export` has made.")
    try:
        with zipfile.ZipFile(file) as source:
            manifest = _manifest(file, source)
            _check_members(file, source, manifest)
            yield Archive(file, source, manifest)
    except zipfile.BadZipFile as error:
        if not _begins_as_zip(file):
            raise _foreign(file) from None
        raise damaged(file, "it was cut off, or its bytes were changed") from error
    except FsdError:
        raise
    except (zlib.error, EOFError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise damaged(file, "its bytes were changed") from error
    except (NotImplementedError, RuntimeError):  # a compression method or a password that no export has
        raise _foreign(file) from None
    except OSError as error:
        raise Unreadable(f"{file} cannot be read ({error.strerror}): check the file and its disk.") from error


def damaged(file: Path, what: str) -> DataDamaged:
    return DataDamaged(f"{file} is damaged ({what}), so nothing was imported: export it again, or use an earlier file.")


class _NoNumber(Exception):
    """NaN or an infinity, which Python's reader takes and JSON does not have."""


def _no_number(constant: str) -> Any:
    raise _NoNumber(constant)


def _foreign(file: Path) -> Unreadable:
    return Unreadable(f"{file} is no export of FSD Lab: name a file that `python -m fsd_core export` has made.")


def _begins_as_zip(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(4) == b"PK\x03\x04"


def _member(table: str) -> str:
    return f"{table}.jsonl"


def _manifest(file: Path, source: zipfile.ZipFile) -> Manifest:
    try:
        with source.open(MANIFEST) as member:
            content = json.loads(member.read(LONGEST_MANIFEST))
    except (KeyError, ValueError):
        raise _foreign(file) from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise _foreign(file)
    newer = f"{file} was exported by a newer version of FSD Lab: update this one, then import it."
    if isinstance(content.get("version"), int) and content["version"] > _VERSION:
        raise Unreadable(newer)
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        raise damaged(file, "its manifest cannot be read") from error
    if manifest.revision not in opening.revisions():
        raise Unreadable(newer)
    return manifest


def _check_members(file: Path, source: zipfile.ZipFile, manifest: Manifest) -> None:
    names = [info.filename for info in source.infolist()]
    expected = [MANIFEST, *map(_member, manifest.members)]
    if sorted(names) != sorted(expected):
        raise damaged(file, "it does not hold the tables that its manifest names")
    if any(stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG) for info in source.infolist()):
        raise damaged(file, "it holds a link, a folder or a device")
    if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in source.infolist()):
        raise _foreign(file)  # others may take any memory to unpack
    size = sum(info.file_size for info in source.infolist())
    if size > max(ALWAYS_INFLATED, MOST_INFLATED * file.stat().st_size):
        raise damaged(file, f"it would unpack to {size / 1e9:,.2f} GB")


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
