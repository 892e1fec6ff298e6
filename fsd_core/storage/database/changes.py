"""Names, notes, tags and archiving, and the append-only log of their changes and of deletions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fsd_core.errors import NotApplicable, Overtaken
from fsd_core.roles import Person
from fsd_core.storage.database.connection import storable
from fsd_core.storage.database.store import Store, unknown
from fsd_core.storage.database.tables import ChangeRow, ExperimentRow, RunRow
from fsd_core.storage.edits import Edit, Subject
from fsd_core.storage.records import LoggedChange


class ChangeStore(Store):
    def annotate(self, kind: Subject, id: str, edit: Edit, who: Person, seen: int | None = None) -> bool:
        """Edit a run or an experiment, and log it. Returns whether anything changed.

        ``seen`` is the number of ``edits`` that the person has seen. Raises ``Overtaken`` if others since then left
        something else, and ``UnknownName``.
        """
        model = RunRow if kind == "run" else ExperimentRow
        try:
            with self._database.session() as session:
                row = session.scalar(select(model).where(model.id == id).with_for_update(of=model))
                if row is None:
                    raise unknown(kind, id)
                change = _difference(row, edit)
                if not change:
                    return False
                if seen is not None and row.edits != seen:
                    raise _overtaken(session, id)
                for name, (_, value) in change.items():
                    setattr(row, name, value)
                row.edits += 1
                log_change(session, kind, id, _experiment_of(row), who, "changed", change)
                if "name" in change:  # MLflow's copies name the experiment
                    session.execute(update(RunRow).where(RunRow.experiment_id == id).values(mlflow_synced_at=None))
                return True
        except IntegrityError as error:
            raise Overtaken("Somebody else changed this at the same moment: look at it, then save again.") from error

    def changes(
        self, *, subject: str | None = None, experiment_id: str | None = None, limit: int
    ) -> list[LoggedChange]:
        """Return the latest changes first: all, those of one run or experiment, or those of an experiment and its
        runs."""
        statement = select(ChangeRow).order_by(ChangeRow.id.desc()).limit(limit)
        if subject is not None:
            statement = statement.where(ChangeRow.subject == subject)
        if experiment_id is not None:
            statement = statement.where(ChangeRow.experiment_id == experiment_id)
        with self._database.session(readonly=True) as session:
            return [_view(row) for row in session.scalars(statement)]


def log_change(
    session: Session, kind: str, id: str, experiment_id: str | None, who: Person, action: str, change: dict[str, Any]
) -> None:
    """Log what somebody did to a run or an experiment."""
    last = session.scalar(select(func.max(ChangeRow.sequence)).where(ChangeRow.subject == id)) or 0
    session.add(
        ChangeRow(
            kind=kind, subject=id, sequence=last + 1, experiment_id=experiment_id, who=who.name,
            role=who.role, owner=who.owner, act=action, change=change,
        )
    )  # fmt: skip


def _difference(row: RunRow | ExperimentRow, edit: Edit) -> dict[str, list[Any]]:
    """Return the columns that change, each with its old and new value."""
    wanted: dict[str, Any] = {"note": edit.note, "archived": edit.archived}
    wanted["tags"] = None if edit.tags is None else " ".join(edit.tags)
    if edit.name is not None:
        if isinstance(row, RunRow):
            raise NotApplicable("A run is called by its setting: give it a note or tags, or name its experiment.")
        wanted["name"] = edit.name.strip()
    new = {name: storable(value) for name, value in wanted.items() if value is not None}
    return {name: [getattr(row, name), value] for name, value in new.items() if getattr(row, name) != value}


def _experiment_of(row: RunRow | ExperimentRow) -> str | None:
    return row.experiment_id if isinstance(row, RunRow) else row.id


def _overtaken(session: Session, id: str) -> Overtaken:
    last = session.scalar(select(ChangeRow).where(ChangeRow.subject == id).order_by(ChangeRow.sequence.desc()))
    who = last.who if last else "Somebody else"
    return Overtaken(f"{who} changed this in the meantime: look at what is new, then save again to replace it.")


def _view(row: ChangeRow) -> LoggedChange:
    return LoggedChange(
        row.kind, row.subject, row.experiment_id, row.at, row.who, row.role, row.act, row.change, row.owner
    )
