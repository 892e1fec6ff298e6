"""Permanent deletion of runs and experiments, and their copies that MLflow still has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session

from fsd_core.errors import WrongState
from fsd_core.roles import LOCAL, Person
from fsd_core.storage.database.changes import log_change
from fsd_core.storage.database.store import Store, get_row
from fsd_core.storage.database.tables import ExperimentRow, JobRow, MlflowDeletionRow, RunRow
from fsd_core.storage.records import UNENDED, Deletion


class DeletionStore(Store):
    def delete_experiment(self, id: str, who: Person = LOCAL) -> Deletion:
        """Delete an experiment with its runs, prompts and traces, and log who did. Returns what was deleted.

        MLflow's copies are deleted later. Raises ``UnknownName``, and ``InvalidSetting`` while any of it is under way.
        """
        with self._database.session() as session:
            experiment = get_row(session, ExperimentRow, id, "experiment")
            deleted = _contents(session, experiment.name, RunRow.experiment_id == id)
            _check_idle(session, [id])
            _delete_runs(session, RunRow.experiment_id == id)
            _delete_experiment(session, id)
            log_change(session, "experiment", id, id, who, "deleted", asdict(deleted))
            return deleted

    def delete_run(self, id: str, who: Person = LOCAL) -> Deletion:
        """Delete a run with its prompts and traces, and log who did. Returns what was deleted.

        MLflow's copy is deleted later. An experiment is deleted with its last run. Raises ``UnknownName``, and
        ``InvalidSetting`` while the run is under way.
        """
        with self._database.session() as session:
            run = get_row(session, RunRow, id, "run")
            experiment_id, deleted = run.experiment_id, _contents(session, run.setting.label, RunRow.id == id)
            _check_idle(session, [id, experiment_id or id])
            _delete_runs(session, RunRow.id == id)
            remaining = select(func.count(RunRow.id)).where(RunRow.experiment_id == experiment_id)
            if experiment_id is not None and not session.scalar(remaining):
                _delete_experiment(session, experiment_id)
            log_change(session, "run", id, experiment_id, who, "deleted", asdict(deleted))
            return deleted

    def deletion(self, *, experiment_id: str | None = None, run_id: str | None = None) -> Deletion:
        """Return the effects of deleting an experiment or a run. Raises ``UnknownName``."""
        with self._database.session(readonly=True) as session:
            if experiment_id is not None:
                name = get_row(session, ExperimentRow, experiment_id, "experiment").name
                return _contents(session, name, RunRow.experiment_id == experiment_id)
            run = get_row(session, RunRow, str(run_id), "run")
            return _contents(session, run.setting.label, RunRow.id == run.id)

    def mlflow_deletions(self) -> list[tuple[str, str]]:
        """Return kind and id of runs and experiments deleted here that MLflow may still have, oldest first."""
        with self._database.session(readonly=True) as session:
            rows = session.scalars(
                select(MlflowDeletionRow).order_by(MlflowDeletionRow.created_at, MlflowDeletionRow.id)
            )
            return [(row.kind, row.id) for row in rows]

    def deleted_in_mlflow(self, ids: Sequence[str]) -> None:
        """Record that MLflow no longer has these."""
        with self._database.session() as session:
            session.execute(delete(MlflowDeletionRow).where(MlflowDeletionRow.id.in_(list(ids))))


def _contents(session: Session, name: str, condition: ColumnElement[bool]) -> Deletion:
    runs, prompts = session.execute(select(func.count(RunRow.id), func.sum(RunRow.prompts_done)).where(condition)).one()
    return Deletion(name, runs, prompts or 0)


def _check_idle(session: Session, jobs: Sequence[str]) -> None:
    if session.scalar(select(JobRow.id).where(JobRow.id.in_(list(jobs)), JobRow.status.in_(UNENDED)).limit(1)):
        raise WrongState("This is under way and cannot be deleted: cancel it first, or wait for its end.")


def _delete_runs(session: Session, condition: ColumnElement[bool]) -> None:
    """Delete runs. The foreign keys' cascade deletes generations and traces."""
    ids = list(session.scalars(select(RunRow.id).where(condition)))
    session.expunge_all()  # nothing that is deleted below may be flushed
    session.execute(delete(RunRow).where(RunRow.id.in_(ids)))
    session.execute(delete(JobRow).where(JobRow.id.in_(ids)))
    session.add_all(MlflowDeletionRow(id=id, kind="run") for id in ids)


def _delete_experiment(session: Session, id: str) -> None:
    session.execute(delete(JobRow).where(JobRow.id == id))
    session.execute(delete(ExperimentRow).where(ExperimentRow.id == id))
    session.add(MlflowDeletionRow(id=id, kind="experiment"))
