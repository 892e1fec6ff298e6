"""An exported file in a database of its own, upgraded to this version and checked before use."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy import Connection, MetaData, create_engine, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.calibration_config import read_sweep
from fsd_core.config.model_names import PAIR_NAME, is_name_of_models
from fsd_core.errors import FsdError, InvalidSetting, NotEnough
from fsd_core.frozen import content_hash, text_hash
from fsd_core.roles import ROLES, folded
from fsd_core.settings import sqlite_url
from fsd_core.storage.database.connection import Database, open_database, upgrade
from fsd_core.storage.database.marks import VERDICTS
from fsd_core.storage.database.tables import (
    ChangeRow,
    EngineReadingRow,
    ExperimentRow,
    MarkRow,
    OwnPairRow,
    ReportRow,
    ReviewEventRow,
    RunRow,
    SavedViewRow,
    SettingRow,
    TaskRow,
    TraceRow,
)
from fsd_core.storage.records import UNENDED
from fsd_core.storage.report_content import ReportContent
from fsd_core.storage.review_events import LONGEST_TEXT, AliasMoved, Proposed, read_event
from fsd_core.storage.saved_views import checked_view_name, checked_view_page, checked_view_query
from fsd_core.storage.workspace.archive import Archive, damaged, opened
from fsd_core.storage.workspace.columns import read_row
from fsd_core.storage.workspace.export import TABLES
from fsd_core.storage.workspace.staged_values import UnreadableValue, check_measurements, check_trace

CUT_OFF = "It was exported before it had ended: resume it to continue at its next prompt."
_ENDED = ("finished", "failed", "cancelled")
_BATCH_ROWS, _BATCH_BYTES = 500, 8_000_000
_ID = re.compile("[0-9a-f]{32}")
_TASK = re.compile("[a-z0-9][a-z0-9-]*")


@contextmanager
def staged(file: Path, scratch: Path) -> Iterator[Database]:
    """Yield the file's contents in a database in the folder ``scratch``, which is deleted after the block.

    Runs that had not ended are cancelled at the time of the export, because no worker here has them. Raises what
    :func:`opened` raises, and ``InvalidSetting`` if there is no room.
    """
    with tempfile.TemporaryDirectory(prefix=".import-", dir=scratch) as folder:
        url = sqlite_url(Path(folder) / "staged.db")
        with opened(file) as archive:
            manifest = archive.manifest
            if 3 * archive.bytes > shutil.disk_usage(folder).free:
                raise NotEnough(
                    f"Importing {file} needs {3 * archive.bytes / 1e9:,.1f} GB in {scratch}: free some space first."
                )
            upgrade(url, to=manifest.revision)
            _load(url, file, archive)
        upgrade(url)
        database = open_database(url)
        try:
            with database.session() as session:
                _check(session, file)
                ended = {"status": "cancelled", "error": CUT_OFF, "finished_at": manifest.exported_at}
                session.execute(update(RunRow).where(RunRow.status.in_(UNENDED)).values(ended))
            yield database
        finally:
            database.close()


def _load(url: str, file: Path, archive: Archive) -> None:
    """Load all rows, unchanged, into tables of the file's own revision."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            tables = MetaData()
            tables.reflect(connection)
            table_names = [model.__tablename__ for model in TABLES if model.__tablename__ in tables.tables]
            if missing := set(archive.manifest.members) ^ set(table_names):
                raise damaged(file, f"its tables are not those of its revision: {min(missing)[:40]}")
            for name in table_names:
                batch, size = [], 0
                for row, length in archive.rows(name):
                    batch.append(read_row(tables.tables[name], row))
                    size += length
                    if len(batch) == _BATCH_ROWS or size > _BATCH_BYTES:
                        connection.execute(insert(tables.tables[name]), batch)
                        batch, size = [], 0
                if batch:
                    connection.execute(insert(tables.tables[name]), batch)
            _check_references(connection, file)
    except FsdError:
        raise
    except IntegrityError as error:
        raise damaged(file, f"two of its rows have one key: {error.orig}") from error
    except ValueError as error:
        raise damaged(file, str(error)) from error
    finally:
        engine.dispose()


def _check_references(connection: Connection, file: Path) -> None:
    broken = connection.execute(text("PRAGMA foreign_key_check")).first()
    if broken is not None:
        raise damaged(file, f"a row of {broken[0]} belongs to a row of {broken[2]} that is not there")


def _check(session: Session, file: Path) -> None:
    """Check that every value can be read. Raises ``DataDamaged``, or ``InvalidSetting`` for a setting whose rule or
    drafter is unknown here."""
    for setting in session.execute(select(SettingRow.id, SettingRow.config)):
        try:
            parsed = SettingConfig.model_validate(setting.config)
        except (ValidationError, FsdError, ValueError):
            raise InvalidSetting(
                f"The setting {setting.id} of {file} cannot be read here, so nothing was imported: install the package "
                "that its rule or drafter is from, or update FSD Lab."
            ) from None
        if parsed.id != setting.id:
            raise damaged(file, f"the setting {setting.id} is not what its id says")
    try:
        for experiment in session.execute(select(ExperimentRow.id, ExperimentRow.config)):
            read_sweep(experiment.config)
            _require(_ID.fullmatch(experiment.id))
        for run in session.execute(select(RunRow.id, RunRow.setting_id, RunRow.config, RunRow.status)):
            _require(RunConfig.model_validate(run.config).setting.id == run.setting_id)
            _require(_ID.fullmatch(run.id) and run.status in (*UNENDED, *_ENDED))
        for pair in session.scalars(select(OwnPairRow)):
            _require(PAIR_NAME.fullmatch(pair.name) and text_hash(pair.models) == pair.version)
            _require(is_name_of_models(pair.models))
        for report in session.scalars(select(ReportRow).execution_options(yield_per=1)):
            content = ReportContent.model_validate(report.content)
            _require(_ID.fullmatch(report.id) and content_hash(content) == report.version)
            _require(content.title == report.title)
        for view in session.scalars(select(SavedViewRow)):
            _require(_ID.fullmatch(view.id) and checked_view_page(view.page))
            _require(checked_view_name(view.name) == view.name and folded(view.name) == view.folded)
            _require(checked_view_query(view.query) == view.query)
        for task in session.scalars(select(TaskRow).execution_options(yield_per=1)):
            _require(_TASK.fullmatch(task.name) and text_hash(task.content) == task.version and task.prompts > 0)
        for trace in session.execute(select(TraceRow.data, TraceRow.sha256).execution_options(yield_per=20)):
            _require(hashlib.sha256(trace.data).hexdigest() == trace.sha256)
            check_trace(trace.data)
        for mark in session.execute(select(MarkRow.position, MarkRow.verdict, MarkRow.note)):
            _require(mark.position >= 0 and mark.verdict in (None, *VERDICTS) and len(mark.note) <= LONGEST_TEXT)
        check_measurements(session)
        for reading in session.scalars(select(EngineReadingRow.reading)):
            _require(all(value is None or isinstance(value, int | str | list) for value in reading.values()))
        _check_reviews(session)
        for entry in session.execute(select(ChangeRow.kind, ChangeRow.act, ChangeRow.role)):
            _require(
                entry.kind in ("run", "experiment") and entry.act in ("changed", "deleted") and entry.role in ROLES
            )
        for model, group in ((ReviewEventRow, ReviewEventRow.use_id), (ChangeRow, ChangeRow.subject)):
            ends = func.min(model.sequence), func.max(model.sequence), func.count(model.id)
            for first, last, entries in session.execute(select(*ends).group_by(group)):
                _require(first == 1 and last == entries)
    except UnreadableValue as error:
        raise damaged(file, f"a value in it cannot be read: {error}") from None
    except (ValueError, TypeError) as error:  # DataDamaged among them
        raise damaged(file, "a value in it cannot be read") from error


def _check_reviews(session: Session) -> None:
    """Raise ``ValueError`` for an event that cannot be read, that concerns a proposal not made before, or that names a
    setting which is not in the file."""
    proposed: set[tuple[str, str]] = set()
    settings = set(session.scalars(select(SettingRow.id)))
    for row in session.scalars(select(ReviewEventRow).order_by(ReviewEventRow.use_id, ReviewEventRow.sequence)):
        event = read_event(row.act)
        _require(event.kind == row.kind and row.role in ROLES)
        named = [getattr(event, name, None) for name in ("setting", "former")]
        if unknown := next((id for id in named if id is not None and id not in settings), None):
            raise UnreadableValue(f"the setting {unknown}, which the use {row.use_id[:40]!r} names, is not in the file")
        if isinstance(event, Proposed):
            proposed.add((row.use_id, event.proposal))
        elif event.about is not None and not isinstance(event, AliasMoved):  # whose proposal need not be in the log
            _require((row.use_id, event.about) in proposed)


def _require(condition: object) -> None:
    if not condition:
        raise ValueError
