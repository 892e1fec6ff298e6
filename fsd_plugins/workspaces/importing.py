"""Import of an exported file into a database: checked in one of its own, then merged in one transaction."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple, Union, get_type_hints

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Connection, MetaData, create_engine, delete, func, select, text, update
from sqlalchemy import insert as plain_insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.calibration_config import GRANTED, read_sweep
from fsd_core.config.model_names import PAIR_NAME, is_name_of_models
from fsd_core.decoding.trace import RoundRecord
from fsd_core.errors import FsdError, InvalidSetting, NotEnough, Taken
from fsd_core.frozen import content_hash, text_hash
from fsd_core.roles import ROLES, folded
from fsd_core.settings import sqlite_url
from fsd_core.storage.catalogue import ReportContent, checked_view_name, checked_view_page, checked_view_query
from fsd_core.storage.column_types import bounded
from fsd_core.storage.opening import Database, dialect_insert, open_database, upgrade
from fsd_core.storage.records import UNENDED
from fsd_core.storage.review_events import LONGEST_TEXT, AliasMoved, Proposed, read_event
from fsd_core.storage.reviews import VERDICTS
from fsd_core.storage.runs import known_pair
from fsd_core.storage.tables import (
    Base,
    ChangeRow,
    EngineReadingRow,
    ExperimentRow,
    GenerationRow,
    MarkRow,
    MeasurementSessionRow,
    MlflowDeletionRow,
    OwnPairRow,
    ReportRow,
    ReviewEventRow,
    RunRow,
    SavedViewRow,
    SettingRow,
    TaskRow,
    TraceRow,
)
from fsd_plugins.workspaces.exporting import TABLES, Archive, damaged, names, opened, plain, read_row, row_values

LONGEST_TRACE = 32_000_000
"""bytes of JSON; 16 times as many once it is read"""
_LONGEST_PLACE = 60


class UnreadableValue(ValueError):
    """A value that no page could show. The message says which, in a few words."""


_ROUND = tuple(get_type_hints(RoundRecord).values())
# The last fields have defaults, and rounds of earlier versions end before some of them.
_DEFAULTED = sum(field.default is not MISSING for field in fields(RoundRecord))
_ROUNDS: TypeAdapter[Any] = TypeAdapter(
    list[Union[*(tuple[_ROUND[: len(_ROUND) - missing]] for missing in range(_DEFAULTED + 1))]]  # pyrefly: ignore
)


def check_measurements(session: Session) -> None:
    """Check all runs, their measurement sessions and their prompts. Raises ``UnreadableValue``."""
    for row, who in (
        (RunRow, (RunRow.id,)),
        (MeasurementSessionRow, (MeasurementSessionRow.run_id,)),
        (GenerationRow, (GenerationRow.run_id, GenerationRow.position)),
    ):
        model = bounded(row)
        named = [getattr(row, name) for name in model.model_fields]
        for values in session.execute(select(*who, *named).execution_options(yield_per=500)):
            try:
                model.model_validate(dict(zip(model.model_fields, values[len(who) :], strict=True)))
            except ValidationError as error:
                place, problem = _first(error)
                raise UnreadableValue(f"{place} of {_subject(values[: len(who)])} ({problem})") from None


def check_trace(data: bytes) -> None:
    """Check that gzipped data holds the rounds of a text. Raises ``UnreadableValue``."""
    inflate = zlib.decompressobj(wbits=31)
    try:
        text = inflate.decompress(data, LONGEST_TRACE)
        if not inflate.eof:
            raise UnreadableValue(f"the rounds of a text (cut off, or more than {LONGEST_TRACE:,} bytes)")
        _ROUNDS.validate_json(text, strict=True)
    except (zlib.error, ValidationError):
        raise UnreadableValue("the rounds of a text") from None


def _subject(values: tuple[Any, ...]) -> str:
    run, *position = values
    return f"prompt {position[0] + 1} of the run {run[:8]}" if position else f"the run {run[:8]}"


def _first(error: ValidationError) -> tuple[str, str]:
    """Return the first place that is wrong, such as ``metrics.accuracy``, and what is wrong there."""
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"] if not _is_of_union(part))[:_LONGEST_PLACE]
    return place, first["msg"].lower()


def _is_of_union(part: str | int) -> bool:
    """Whether a part of a place names a type of a union, which nobody has written."""
    return isinstance(part, str) and (part in ("str", "bool") or any(mark in part for mark in ("[", "constrained")))


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
                        connection.execute(plain_insert(tables.tables[name]), batch)
                        batch, size = [], 0
                if batch:
                    connection.execute(plain_insert(tables.tables[name]), batch)
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


_BATCH = 100
_EDITED_COLUMNS = ("name", "note", "tags", "archived", "edits")
"""columns whose values follow from the log of changes"""
REQUEST_COLUMNS = ("setting_id", "experiment_id", "position", "task", "seed", "config", "created_at", "prompts_total")
"""columns of a run that define the request, and never change"""
_ELSEWHERE = "Import the file into an empty database instead, or delete it here first."


class Merge(NamedTuple):
    """A file's rows, the rows that are here, and which of the file's have been taken."""

    source: Session
    target: Session
    taken: defaultdict[type[Base], Counter[tuple[Any, ...]]]
    """by table and primary key in the file, how many rows are new: 0 if one replaced that here; prompts by their run"""


class Policy(NamedTuple):
    """What becomes of the rows of a table. One whose key is not here is added."""

    replaces: Callable[[Merge, Any, Any], bool]
    """whether of two rows of one key, the one here and the file's, the latter counts; raises ``Taken`` for two that
    cannot be the same"""
    keeps: tuple[str, ...] = ()
    """columns in which the one here counts nevertheless"""
    key: tuple[str, ...] = ()
    """columns by which rows are compared; empty: the primary key, otherwise each database counts that itself"""
    admits: Callable[[Merge, Any], bool] = lambda merge, row: True
    """whether a row of the file is looked at"""
    renames: Callable[[Merge, Any], dict[str, Any]] = lambda merge, row: {}
    """values of a new row that are not the file's"""
    then: Callable[[Merge, Any], None] = lambda merge, row: None
    """what follows once a row was taken"""


def _never(merge: Merge, here: Base, row: Base) -> bool:
    """Rows never change."""
    return False


def _always(merge: Merge, here: Base, row: Base) -> bool:
    return True


def _later(merge: Merge, here: MarkRow | SavedViewRow, row: MarkRow | SavedViewRow) -> bool:
    return here.at < row.at


def _longer_granted(merge: Merge, existing: ExperimentRow, incoming: ExperimentRow) -> bool:
    """An experiment never changes, but a calibration may be granted time later."""
    requests = [({**each.config, GRANTED: None}, each.created_at) for each in (existing, incoming)]
    if requests[0] != requests[1]:
        raise Taken(f"Nothing was imported: the experiment {incoming.id} is here with other settings. {_ELSEWHERE}")
    return incoming.config.get(GRANTED, 0) > existing.config.get(GRANTED, 0)


def _gone_on(merge: Merge, existing_run: RunRow, incoming_run: RunRow) -> bool:
    """A run's request and its prompts never change, but it may go on: in the file, or here."""
    if any(getattr(existing_run, name) != getattr(incoming_run, name) for name in REQUEST_COLUMNS):
        raise Taken(f"Nothing was imported: the run {existing_run.id} is here with other settings. {_ELSEWHERE}")
    existing, incoming = (_prompts(session, existing_run.id) for session in (merge.target, merge.source))
    if conflicts := [p for p in incoming.keys() & existing.keys() if not incoming[p].same(existing[p])]:
        raise Taken(
            f"Nothing was imported: prompt {min(conflicts) + 1} of the run {existing_run.id} is here with another "
            f"record. {_ELSEWHERE}"
        )
    further, missing = incoming.keys() - existing.keys(), existing.keys() - incoming.keys()
    if further and (missing or existing_run.status in UNENDED):
        raise Taken(
            f"Nothing was imported: the run {existing_run.id} has gone on both here and in the file. {_ELSEWHERE}"
        )
    return bool(further)


class Prompt(NamedTuple):
    """Digests of one prompt of a run, for comparison: of its record, and of its trace if that is stored."""

    digest: str
    trace: str | None

    def same(self, other: Prompt) -> bool:
        return self.digest == other.digest and (self.trace == other.trace or None in (self.trace, other.trace))


def _prompts(session: Session, run_id: str) -> dict[int, Prompt]:
    columns = [GenerationRow.__table__.columns[name] for name in names(GenerationRow, "id", "run_id", "sitting_id")]
    statement = select(*columns, MeasurementSessionRow.conditions, TraceRow.sha256).select_from(GenerationRow)
    statement = statement.outerjoin(MeasurementSessionRow, MeasurementSessionRow.id == GenerationRow.sitting_id)
    statement = statement.outerjoin(TraceRow, TraceRow.generation_id == GenerationRow.id).where(
        GenerationRow.run_id == run_id
    )
    prompts = {}
    for row in session.execute(statement.execution_options(yield_per=_BATCH)).mappings():
        # A measurement session without conditions is added when a run continues; see GenerationStore.
        values = plain(row) | {"conditions": row["conditions"] or None, "sha256": None}
        content = json.dumps(values, sort_keys=True).encode()
        prompts[row["position"]] = Prompt(hashlib.sha256(content).hexdigest(), row["sha256"])
    return prompts


def _add_prompts(merge: Merge, run: RunRow) -> None:
    """Add the run's prompts that are not here, with their traces and measurement sessions."""
    source, target, taken = merge
    target.execute(update(RunRow).where(RunRow.id == run.id).values(mlflow_synced_at=None))
    stored = set(target.scalars(select(GenerationRow.position).where(GenerationRow.run_id == run.id)))
    session_ids = _session_ids(source, target, run.id)
    columns = [GenerationRow.__table__.columns[name] for name in names(GenerationRow, "id")]
    rows = select(*columns, TraceRow.data, TraceRow.sha256).select_from(GenerationRow)
    rows = rows.outerjoin(TraceRow, TraceRow.generation_id == GenerationRow.id).where(GenerationRow.run_id == run.id)
    rows = rows.order_by(GenerationRow.position).execution_options(yield_per=_BATCH)
    for part in source.execute(rows).mappings().partitions():
        for values in map(dict, part):
            data, checksum = values.pop("data"), values.pop("sha256")
            if values["position"] not in stored:
                values["sitting_id"] = session_ids.get(values["sitting_id"])
                target.add(GenerationRow(**values, trace=TraceRow(data=data, sha256=checksum) if data else None))
                taken[GenerationRow][(run.id,)] += 1
        target.flush()
        target.expunge_all()  # so that a large run does not stay in memory


def _session_ids(source: Session, target: Session, run_id: str) -> dict[int, int]:
    """Return the ids here of the file's measurement sessions of a run. Sessions with equal conditions are merged."""
    statement = (
        select(MeasurementSessionRow).where(MeasurementSessionRow.run_id == run_id).order_by(MeasurementSessionRow.id)
    )
    existing = list(target.scalars(statement))
    ids = {}
    for incoming in source.scalars(statement):
        match = next((stored for stored in existing if stored.conditions == incoming.conditions), None)
        if match is None:
            match = MeasurementSessionRow(**row_values(incoming, "id"))
            target.add(match)
            target.flush()
            existing.append(match)
        ids[incoming.id] = match.id
    return ids


def _same_entry(merge: Merge, here: ReviewEventRow | ChangeRow, row: ReviewEventRow | ChangeRow) -> bool:
    """A log is never rewritten, so one of the two continues the other."""
    if row_values(here, "id") != row_values(row, "id"):
        what = f"the use '{row.use_id}'" if isinstance(row, ReviewEventRow) else f"the {row.kind} {row.subject}"
        raise Taken(
            f"Nothing was imported: {what} has another history here than in the file, and a log is never rewritten. "
            "Import the file into an empty database instead."
        )
    return False


def _of_a_taken_run(merge: Merge, reading: EngineReadingRow) -> bool:
    return (reading.run_id,) in merge.taken[RunRow]


def _named_as_here(merge: Merge, setting: SettingRow) -> dict[str, Any]:
    """Models that are known here keep the name that they have here."""
    return {"pair": known_pair(merge.target, setting.config.get("identity", "")) or setting.pair}


def _named_as_no_other(merge: Merge, view: SavedViewRow) -> bool:
    """A name that is taken here stays whose it is."""
    of_name = (SavedViewRow.page == view.page) & (SavedViewRow.folded == view.folded)
    return merge.target.scalar(select(SavedViewRow.id).where(of_name, SavedViewRow.id != view.id)) is None


_SUBJECTS: dict[str, type[RunRow | ExperimentRow]] = {"run": RunRow, "experiment": ExperimentRow}


def _of_a_kept_subject(merge: Merge, change: ChangeRow) -> bool:
    """What was deleted in the file, and is here, has its own history here."""
    row, here = (session.get(_SUBJECTS[change.kind], change.subject) for session in (merge.source, merge.target))
    return row is not None or here is None


def _annotate(merge: Merge, change: ChangeRow) -> None:
    """Give the subject of a change the name, note and tags that follow from the file's log."""
    row, here = (session.get(_SUBJECTS[change.kind], change.subject) for session in (merge.source, merge.target))
    if row is None or here is None:
        return
    # MLflow's copies show the name of the experiment.
    if isinstance(here, ExperimentRow) and here.name != getattr(row, "name", None):
        merge.target.execute(update(RunRow).where(RunRow.experiment_id == here.id).values(mlflow_synced_at=None))
    for name in _EDITED_COLUMNS:
        if hasattr(here, name):
            setattr(here, name, getattr(row, name))


POLICIES: dict[type[Base], Policy] = {
    OwnPairRow: Policy(_never),
    TaskRow: Policy(_never),
    SettingRow: Policy(_never, renames=_named_as_here),
    ExperimentRow: Policy(_longer_granted, keeps=_EDITED_COLUMNS),
    RunRow: Policy(_gone_on, keeps=_EDITED_COLUMNS, then=_add_prompts),
    MarkRow: Policy(_later),
    EngineReadingRow: Policy(_always, admits=_of_a_taken_run),
    ReviewEventRow: Policy(_same_entry, key=("use_id", "sequence")),
    ChangeRow: Policy(_same_entry, key=("subject", "sequence"), admits=_of_a_kept_subject, then=_annotate),
    ReportRow: Policy(_never),
    SavedViewRow: Policy(_later, admits=_named_as_no_other),
}
"""By table, in an order in which none refers to a later one. Measurement sessions, prompts and traces come with their
runs."""


class Imported(NamedTuple):
    """Counts of an import's additions (versions of tasks), and of the runs that existed already (``existing``)."""

    experiments: int
    runs: int
    prompts: int
    events: int
    existing: int
    tasks: int


def import_file(database: Database, file: Path, scratch: Path) -> Imported:
    """Add what the file has and the database lacks, as :data:`POLICIES` says; all or nothing.

    A run that exists here with the same or more prompts is left alone. A run with more prompts in the file gets these.
    Raises ``InvalidSetting``, with nothing written, if the two have diverged. Also raises what
    :func:`staged` raises.
    """
    with staged(file, scratch) as imported, imported.session(readonly=True) as source, database.session() as target:
        merge = Merge(source, target, defaultdict(Counter))
        for model, policy in POLICIES.items():
            _merge(merge, model, policy)
        taken, runs = merge.taken, len(merge.taken[RunRow])
        back = [id for (id,) in [*taken[ExperimentRow], *taken[RunRow]]]
        target.execute(delete(MlflowDeletionRow).where(MlflowDeletionRow.id.in_(back)))
        existing = (source.scalar(select(func.count(RunRow.id))) or 0) - runs
        prompts, events, tasks = (taken[model].total() for model in (GenerationRow, ReviewEventRow, TaskRow))
        return Imported(taken[ExperimentRow].total(), runs, prompts, events, existing, tasks)


def _merge(merge: Merge, model: type[Base], policy: Policy) -> None:
    """Add a table's rows, one after the other, so that large ones do not stay in memory."""
    source, target, taken = merge
    columns, primary = model.__table__.columns, [column.name for column in model.__mapper__.primary_key]
    order = [columns[name] for name in ("created_at", "position", *primary) if name in columns]
    for row in source.scalars(select(model).order_by(*order).execution_options(yield_per=1)):
        if not policy.admits(merge, row):
            continue
        same = [columns[name] == getattr(row, name) for name in policy.key or primary]
        here = target.scalar(select(model).where(*same))
        values = row_values(row, *(("id",) if policy.key else ()))
        if here is None:
            statement = dialect_insert(target, model).values(values | policy.renames(merge, row))
            # What never changes may have been added here at this very moment.
            target.execute(statement.on_conflict_do_nothing() if policy.replaces is _never else statement)
        elif policy.replaces(merge, here, row):
            for name in values.keys() - set(policy.keeps):
                setattr(here, name, values[name])
        else:
            continue
        taken[model][tuple(getattr(row, name) for name in primary)] = int(here is None)
        policy.then(merge, row)
        target.flush()
        target.expunge_all()
