"""Import of an exported file into a database, in one transaction and only without conflicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from fsd_core.storage.database.connection import Database
from fsd_core.storage.database.runs import known_pair
from fsd_core.storage.database.store import insert
from fsd_core.storage.database.tables import (
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
from fsd_core.storage.workspace.columns import names, row_values
from fsd_core.storage.workspace.new_rows import REQUEST_COLUMNS, new_changes, new_events, new_experiments, new_prompts
from fsd_core.storage.workspace.staging import staged

_BATCH = 100
_EDITED_COLUMNS = ("name", "note", "tags", "archived", "edits")
"""columns whose values follow from the log of changes"""


class Imported(NamedTuple):
    """Counts of an import's additions (versions of tasks), and of the runs that existed already (``existing``)."""

    experiments: int
    runs: int
    prompts: int
    events: int
    existing: int
    tasks: int


def import_file(database: Database, file: Path, scratch: Path) -> Imported:
    """Add what the file has and the database lacks; all or nothing.

    A run that exists here with the same or more prompts is left alone. A run with more prompts in the file gets these.
    Raises ``InvalidSetting``, with nothing written, if the two have diverged. Also raises what
    :func:`fsd_core.storage.workspace.staging.staged` raises.
    """
    with staged(file, scratch) as imported, imported.session(readonly=True) as source, database.session() as target:
        experiments = new_experiments(source, target)
        runs = new_prompts(source, target)
        events = new_events(source, target)
        changes = new_changes(source, target)
        tasks = _add_tasks(source, target)
        _add_settings(source, target)
        target.add_all(ExperimentRow(**row_values(row)) for row in experiments)
        target.flush()
        added = {id: positions for id, positions in runs.items() if positions is not None}
        existing = len(runs) - len(added)
        present = _present(target, RunRow, added)
        for id, positions in added.items():
            _add_prompts(source, target, id, positions, new=id not in present)
        _add_marks(source, target)
        _add_readings(source, target, added)
        _add_reports(source, target)
        _add_views(source, target)
        target.execute(
            delete(MlflowDeletionRow).where(MlflowDeletionRow.id.in_([*added, *(e.id for e in experiments)]))
        )
        target.add_all(ReviewEventRow(**row_values(row, "id")) for row in sorted(events, key=lambda row: row.id))
        _add_changes(source, target, changes)
        prompts = sum(len(positions) for positions in added.values())
        return Imported(len(experiments), len(added), prompts, len(events), existing, tasks)


def _present(session: Session, model: type[Base], ids: Iterable[str]) -> set[str]:
    key = model.__table__.columns["id"]
    wanted = list(ids)
    present: set[str] = set()
    for start in range(0, len(wanted), 500):
        present.update(session.scalars(select(key).where(key.in_(wanted[start : start + 500]))))
    return present


def _add_tasks(source: Session, target: Session) -> int:
    """Add missing versions and return their number. A version is the hash of its content, so equal versions are the
    same."""
    count = 0
    for incoming in source.scalars(select(OwnPairRow)):
        if target.get(OwnPairRow, (incoming.name, incoming.version)) is None:
            target.add(OwnPairRow(**row_values(incoming)))
    for incoming in source.scalars(select(TaskRow).execution_options(yield_per=1)):
        if target.get(TaskRow, (incoming.name, incoming.version)) is None:
            target.add(TaskRow(**row_values(incoming)))
            target.flush()
            target.expunge_all()  # so that a large one does not stay in memory
            count += 1
    return count


def _add_settings(source: Session, target: Session) -> None:
    """Add missing settings. An id is the hash of the content, so equal ids are the same setting. Models that are known
    here keep the name that they have here."""
    for row in source.scalars(select(SettingRow).order_by(SettingRow.created_at, SettingRow.id)):
        values = row_values(row)
        values["pair"] = known_pair(target, row.config.get("identity", "")) or row.pair
        target.execute(insert(target, SettingRow).values(values).on_conflict_do_nothing())


def _add_changes(source: Session, target: Session, changes: Sequence[ChangeRow]) -> None:
    """Log changes, and give their subjects the names, notes and tags that follow from them."""
    target.flush()
    for kind, subject in {(change.kind, change.subject) for change in changes}:
        model = RunRow if kind == "run" else ExperimentRow
        incoming, existing = source.get(model, subject), target.get(model, subject)
        if incoming is not None and existing is not None:
            # MLflow's copies show the name of the experiment.
            if isinstance(existing, ExperimentRow) and existing.name != getattr(incoming, "name", None):
                target.execute(update(RunRow).where(RunRow.experiment_id == subject).values(mlflow_synced_at=None))
            for name in _EDITED_COLUMNS:
                if hasattr(existing, name):
                    setattr(existing, name, getattr(incoming, name))
    target.add_all(ChangeRow(**row_values(row, "id")) for row in sorted(changes, key=lambda row: row.id))


def _add_prompts(source: Session, target: Session, run_id: str, positions: list[int], *, new: bool) -> None:
    """Add a run with the prompts at these positions, or add these to an existing run, which then ends like the
    file's."""
    incoming = source.get_one(RunRow, run_id)
    if new:
        run = RunRow(**row_values(incoming))
        target.add(run)
    else:
        run = target.get_one(RunRow, run_id)
        for name, value in row_values(incoming, "id", *REQUEST_COLUMNS, *_EDITED_COLUMNS).items():
            setattr(run, name, value)
        run.mlflow_synced_at = None
    target.flush()
    session_ids = _session_ids(source, target, run_id)
    wanted = set(positions)
    columns = [GenerationRow.__table__.columns[name] for name in names(GenerationRow, "id")]
    rows = select(*columns, TraceRow.data, TraceRow.sha256).select_from(GenerationRow)
    rows = rows.outerjoin(TraceRow, TraceRow.generation_id == GenerationRow.id).where(GenerationRow.run_id == run_id)
    rows = rows.order_by(GenerationRow.position).execution_options(yield_per=_BATCH)
    for part in source.execute(rows).mappings().partitions():
        for values in map(dict, part):
            data, checksum = values.pop("data"), values.pop("sha256")
            if values["position"] in wanted:
                values["sitting_id"] = session_ids.get(values["sitting_id"])
                target.add(GenerationRow(**values, trace=TraceRow(data=data, sha256=checksum) if data else None))
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


def _add_readings(source: Session, target: Session, runs: Iterable[str]) -> None:
    """Add what engines' counters said about runs that are added or went on."""
    for incoming in source.scalars(select(EngineReadingRow).where(EngineReadingRow.run_id.in_(list(runs)))):
        target.merge(EngineReadingRow(**row_values(incoming)))


def _add_marks(source: Session, target: Session) -> None:
    """Add marks. Of two marks by one person on one output, the later one counts."""
    for incoming in source.scalars(select(MarkRow)):
        existing = target.get(MarkRow, (incoming.run_id, incoming.position, incoming.who))
        if existing is None or existing.at < incoming.at:
            target.merge(MarkRow(**row_values(incoming)))


def _add_reports(source: Session, target: Session) -> None:
    """Add missing reports. A report never changes, so two of one id are the same."""
    for incoming in source.scalars(select(ReportRow).execution_options(yield_per=1)):
        if target.get(ReportRow, incoming.id) is None:
            target.add(ReportRow(**row_values(incoming)))


def _add_views(source: Session, target: Session) -> None:
    """Add missing views. Of two versions of one view the later one counts. A name that is taken here stays whose it
    is."""
    for incoming in source.scalars(select(SavedViewRow).order_by(SavedViewRow.id)):
        existing = target.get(SavedViewRow, incoming.id)
        of_name = (SavedViewRow.page == incoming.page) & (SavedViewRow.folded == incoming.folded)
        taken = target.scalar(select(SavedViewRow.id).where(of_name, SavedViewRow.id != incoming.id))
        if taken is None and (existing is None or existing.at < incoming.at):
            target.merge(SavedViewRow(**row_values(incoming)))
