"""An exported file added to a database: in one transaction, and only where nothing in it speaks against."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import delete, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from fsd_core.config.calibration_config import GRANTED
from fsd_core.errors import InvalidSetting
from fsd_core.storage.database.connection import Database
from fsd_core.storage.database.runs import UNENDED
from fsd_core.storage.database.tables import (
    Base,
    ChangeRow,
    ExperimentRow,
    GenerationRow,
    MarkRow,
    MlflowDeletionRow,
    ReviewEventRow,
    RunRow,
    SettingRow,
    SittingRow,
    TaskRow,
    TraceRow,
)
from fsd_core.storage.workspace.columns import names, plain
from fsd_core.storage.workspace.staging import staged

Entry = TypeVar("Entry", ReviewEventRow, ChangeRow)
_BATCH = 100
_ASKED = ("setting_id", "experiment_id", "position", "task", "seed", "config", "created_at", "prompts_total")
"""columns of a run that say what was asked, and never change"""
_SAID = ("name", "note", "tags", "archived", "edits")
"""columns whose values follow from the log of changes"""
_ELSEWHERE = "Import the file into an empty database instead, or delete it here first."


class Imported(NamedTuple):
    """What an import added (of tasks, versions), and how many runs were there already."""

    experiments: int
    runs: int
    prompts: int
    acts: int
    there: int
    tasks: int


class Prompt(NamedTuple):
    """One prompt of a run, for comparison: a digest of what was recorded, and of its trace where that is kept."""

    digest: str
    trace: str | None

    def same(self, other: Prompt) -> bool:
        return self.digest == other.digest and (self.trace == other.trace or None in (self.trace, other.trace))


def import_file(database: Database, file: Path, scratch: Path) -> Imported:
    """Adds what the file has and the database has not; all or nothing.

    A run that is here with the same prompts is left alone, and one that has gone on since. One that the file has
    gone on with gets its further prompts. Raises ``InvalidSetting``, with nothing written, where the two went on in
    different ways; and as :func:`fsd_core.storage.workspace.staging.staged` does.
    """
    with staged(file, scratch) as other, other.session(readonly=True) as source, database.session() as target:
        experiments = _new_experiments(source, target)
        runs = _new_prompts(source, target)
        acts = _new_acts(source, target)
        changes = _new_changes(source, target)
        tasks = _add_tasks(source, target)
        _add_settings(source, target)
        target.add_all(ExperimentRow(**_values(row)) for row in experiments)
        target.flush()
        added = {id: positions for id, positions in runs.items() if positions is not None}
        there = len(runs) - len(added)
        new = _present(target, RunRow, added)
        for id, positions in added.items():
            _add_prompts(source, target, id, positions, new=id not in new)
        _add_marks(source, target)
        target.execute(
            delete(MlflowDeletionRow).where(MlflowDeletionRow.id.in_([*added, *(e.id for e in experiments)]))
        )
        target.add_all(ReviewEventRow(**_values(row, "id")) for row in sorted(acts, key=lambda row: row.id))
        _add_changes(source, target, changes)
        prompts = sum(len(positions) for positions in added.values())
        return Imported(len(experiments), len(added), prompts, len(acts), there, tasks)


def _values(row: Base, *but: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names(type(row), *but)}


def _present(session: Session, model: type[Base], ids: Iterable[str]) -> set[str]:
    key = model.__table__.columns["id"]
    wanted = list(ids)
    found: set[str] = set()
    for start in range(0, len(wanted), 500):
        found.update(session.scalars(select(key).where(key.in_(wanted[start : start + 500]))))
    return found


# --- what is new -----------------------------------------------------------------------------------------------------


def _new_experiments(source: Session, target: Session) -> list[ExperimentRow]:
    new = []
    for theirs in source.scalars(select(ExperimentRow).order_by(ExperimentRow.created_at, ExperimentRow.id)):
        ours = target.get(ExperimentRow, theirs.id)
        if ours is None:
            new.append(theirs)
        elif (_asked(ours), ours.created_at) != (_asked(theirs), theirs.created_at):
            raise InvalidSetting(
                f"Nothing was imported: the experiment {theirs.id} is here with other settings. {_ELSEWHERE}"
            )
        elif theirs.config.get(GRANTED, 0) > ours.config.get(GRANTED, 0):
            ours.config = dict(theirs.config)
    return new


def _asked(experiment: ExperimentRow) -> dict[str, Any]:
    """What it was asked to do, without the time that a calibration was given later."""
    return {name: value for name, value in experiment.config.items() if name != GRANTED}


def _new_prompts(source: Session, target: Session) -> dict[str, list[int] | None]:
    """Of each run of the file the positions of the prompts to add; ``None`` where it is left alone."""
    found: dict[str, list[int] | None] = {}
    for theirs in source.scalars(select(RunRow).order_by(RunRow.created_at, RunRow.position, RunRow.id)):
        has = _prompts(source, theirs.id)
        ours = target.get(RunRow, theirs.id)
        if ours is None:
            found[theirs.id] = sorted(has)
            continue
        if any(getattr(ours, name) != getattr(theirs, name) for name in _ASKED):
            raise InvalidSetting(f"Nothing was imported: the run {ours.id} is here with other settings. {_ELSEWHERE}")
        here = _prompts(target, ours.id)
        if others := [p for p in has.keys() & here.keys() if not has[p].same(here[p])]:
            raise InvalidSetting(
                f"Nothing was imported: prompt {min(others) + 1} of the run {ours.id} is here with another record. "
                f"{_ELSEWHERE}"
            )
        further, behind = sorted(has.keys() - here.keys()), here.keys() - has.keys()
        if further and (behind or ours.status in UNENDED):
            raise InvalidSetting(
                f"Nothing was imported: the run {ours.id} has gone on both here and in the file. {_ELSEWHERE}"
            )
        found[ours.id] = further or None
    return found


def _prompts(session: Session, run_id: str) -> dict[int, Prompt]:
    columns = [GenerationRow.__table__.columns[name] for name in names(GenerationRow, "id", "run_id", "sitting_id")]
    statement = select(*columns, SittingRow.conditions, TraceRow.sha256).select_from(GenerationRow)
    statement = statement.outerjoin(SittingRow, SittingRow.id == GenerationRow.sitting_id)
    statement = statement.outerjoin(TraceRow, TraceRow.generation_id == GenerationRow.id).where(
        GenerationRow.run_id == run_id
    )
    found = {}
    for row in session.execute(statement.execution_options(yield_per=_BATCH)).mappings():
        # A sitting of which nothing is known is added when a run goes on; see GenerationStore.
        values = plain(row) | {"conditions": row["conditions"] or None, "sha256": None}
        content = json.dumps(values, sort_keys=True).encode()
        found[row["position"]] = Prompt(hashlib.sha256(content).hexdigest(), row["sha256"])
    return found


def _new_acts(source: Session, target: Session) -> list[ReviewEventRow]:
    new: list[ReviewEventRow] = []
    for use in source.scalars(select(ReviewEventRow.use_id).distinct().order_by(ReviewEventRow.use_id)):
        mine = select(ReviewEventRow).where(ReviewEventRow.use_id == use).order_by(ReviewEventRow.sequence)
        new += _continued(f"the use '{use}'", source.scalars(mine).all(), target.scalars(mine).all())
    return new


def _new_changes(source: Session, target: Session) -> list[ChangeRow]:
    """Of what is in the file, or is nowhere any more: what was deleted there and is here stays as it is."""
    new: list[ChangeRow] = []
    subjects = select(ChangeRow.kind, ChangeRow.subject).distinct().order_by(ChangeRow.subject)
    for kind, subject in source.execute(subjects):
        model = RunRow if kind == "run" else ExperimentRow
        if source.get(model, subject) is None and target.get(model, subject) is not None:
            continue
        mine = select(ChangeRow).where(ChangeRow.subject == subject).order_by(ChangeRow.sequence)
        new += _continued(f"the {kind} {subject}", source.scalars(mine).all(), target.scalars(mine).all())
    return new


def _continued(what: str, theirs: Sequence[Entry], ours: Sequence[Entry]) -> Sequence[Entry]:
    """What the file's log has beyond ours. Raises ``InvalidSetting`` where neither continues the other."""
    said = [[_values(entry, "id") for entry in log] for log in (theirs, ours)]
    if any(one != other for one, other in zip(*said, strict=False)):
        raise InvalidSetting(
            f"Nothing was imported: {what} has another history here than in the file, and a log is never rewritten. "
            "Import the file into an empty database instead."
        )
    return theirs[len(ours) :]


# --- adding it -------------------------------------------------------------------------------------------------------


def _add_tasks(source: Session, target: Session) -> int:
    """Versions that are not here; how many. A version is the hash of its content, so one that is here is the same."""
    count = 0
    for theirs in source.scalars(select(TaskRow).execution_options(yield_per=1)):
        if target.get(TaskRow, (theirs.name, theirs.version)) is None:
            target.add(TaskRow(**_values(theirs)))
            target.flush()
            target.expunge_all()  # a large one is not kept in memory
            count += 1
    return count


def _add_settings(source: Session, target: Session) -> None:
    """A setting's id is the hash of its content, so one that is here is the same."""
    add = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[target.get_bind().dialect.name]
    for row in source.scalars(select(SettingRow).order_by(SettingRow.created_at, SettingRow.id)):
        target.execute(add(SettingRow).values(_values(row)).on_conflict_do_nothing())


def _add_changes(source: Session, target: Session, changes: Sequence[ChangeRow]) -> None:
    """Logs them, and gives their subjects the names, notes and tags that follow from them."""
    target.flush()
    for kind, subject in {(change.kind, change.subject) for change in changes}:
        model = RunRow if kind == "run" else ExperimentRow
        theirs, ours = source.get(model, subject), target.get(model, subject)
        if theirs is not None and ours is not None:
            if isinstance(ours, ExperimentRow) and ours.name != getattr(theirs, "name", None):  # as MLflow's copies do
                target.execute(update(RunRow).where(RunRow.experiment_id == subject).values(mlflow_synced_at=None))
            for name in _SAID:
                if hasattr(ours, name):
                    setattr(ours, name, getattr(theirs, name))
    target.add_all(ChangeRow(**_values(row, "id")) for row in sorted(changes, key=lambda row: row.id))


def _add_prompts(source: Session, target: Session, run_id: str, positions: list[int], *, new: bool) -> None:
    """A run with the prompts at these positions, or these prompts of a run that is here, which ends as the file's."""
    theirs = source.get_one(RunRow, run_id)
    if new:
        run = RunRow(**_values(theirs))
        target.add(run)
    else:
        run = target.get_one(RunRow, run_id)
        for name, value in _values(theirs, "id", *_ASKED, *_SAID).items():
            setattr(run, name, value)
        run.mlflow_synced_at = None
    target.flush()
    sittings = _sittings(source, target, run_id)
    wanted = set(positions)
    columns = [GenerationRow.__table__.columns[name] for name in names(GenerationRow, "id")]
    rows = select(*columns, TraceRow.data, TraceRow.sha256).select_from(GenerationRow)
    rows = rows.outerjoin(TraceRow, TraceRow.generation_id == GenerationRow.id).where(GenerationRow.run_id == run_id)
    rows = rows.order_by(GenerationRow.position).execution_options(yield_per=_BATCH)
    for part in source.execute(rows).mappings().partitions():
        for values in map(dict, part):
            data, checksum = values.pop("data"), values.pop("sha256")
            if values["position"] in wanted:
                values["sitting_id"] = sittings.get(values["sitting_id"])
                target.add(GenerationRow(**values, trace=TraceRow(data=data, sha256=checksum) if data else None))
        target.flush()
        target.expunge_all()  # a large run is not kept in memory


def _sittings(source: Session, target: Session, run_id: str) -> dict[int, int]:
    """The ids here of the file's sittings of a run; those of the same conditions are one."""
    mine = select(SittingRow).where(SittingRow.run_id == run_id).order_by(SittingRow.id)
    here = list(target.scalars(mine))
    ids = {}
    for theirs in source.scalars(mine):
        same = next((one for one in here if one.conditions == theirs.conditions), None)
        if same is None:
            same = SittingRow(**_values(theirs, "id"))
            target.add(same)
            target.flush()
            here.append(same)
        ids[theirs.id] = same.id
    return ids


def _add_marks(source: Session, target: Session) -> None:
    """Of two marks of one person on one output the later one is what they think."""
    for theirs in source.scalars(select(MarkRow)):
        ours = target.get(MarkRow, (theirs.run_id, theirs.position, theirs.who))
        if ours is None or ours.at < theirs.at:
            target.merge(MarkRow(**_values(theirs)))
