"""Runs and experiments deleted for good, and the copies of them that MLflow still has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session

from fsd_core.errors import InvalidSetting
from fsd_core.roles import LOCAL, Person
from fsd_core.storage.database.changes import log_change
from fsd_core.storage.database.runs import UNENDED
from fsd_core.storage.database.store import Store, get_row
from fsd_core.storage.database.tables import ExperimentRow, JobRow, MlflowDeletionRow, RunRow
from fsd_core.storage.records import Deletion


class DeletionStore(Store):
    def delete_experiment(self, id: str, who: Person = LOCAL) -> Deletion:
        """Deletes an experiment with its runs, prompts and traces, and logs who did; MLflow's copies follow. Returns
        what went.

        Raises ``UnknownName``, and ``InvalidSetting`` while any of it is under way.
        """
        with self._database.session() as session:
            experiment = get_row(session, ExperimentRow, id, "experiment")
            gone = _gone(session, experiment.name, RunRow.experiment_id == id)
            _check_idle(session, [id])
            _delete_runs(session, RunRow.experiment_id == id)
            _delete_experiment(session, id)
            log_change(session, "experiment", id, id, who, "deleted", asdict(gone))
            return gone

    def delete_run(self, id: str, who: Person = LOCAL) -> Deletion:
        """Deletes a run with its prompts and traces, and logs who did; MLflow's copy follows. An experiment's last run
        takes it along.

        Raises ``UnknownName``, and ``InvalidSetting`` while the run is under way.
        """
        with self._database.session() as session:
            run = get_row(session, RunRow, id, "run")
            experiment_id, gone = run.experiment_id, _gone(session, run.setting.label, RunRow.id == id)
            _check_idle(session, [id, experiment_id or id])
            _delete_runs(session, RunRow.id == id)
            left = select(func.count(RunRow.id)).where(RunRow.experiment_id == experiment_id)
            if experiment_id is not None and not session.scalar(left):
                _delete_experiment(session, experiment_id)
            log_change(session, "run", id, experiment_id, who, "deleted", asdict(gone))
            return gone

    def deletion(self, *, experiment_id: str | None = None, run_id: str | None = None) -> Deletion:
        """What deleting an experiment or a run would delete. Raises ``UnknownName``."""
        with self._database.session(readonly=True) as session:
            if experiment_id is not None:
                name = get_row(session, ExperimentRow, experiment_id, "experiment").name
                return _gone(session, name, RunRow.experiment_id == experiment_id)
            run = get_row(session, RunRow, str(run_id), "run")
            return _gone(session, run.setting.label, RunRow.id == run.id)

    def mlflow_deletions(self) -> list[tuple[str, str]]:
        """Kind and id of what was deleted here and may still be in MLflow, oldest first."""
        with self._database.session(readonly=True) as session:
            rows = session.scalars(
                select(MlflowDeletionRow).order_by(MlflowDeletionRow.created_at, MlflowDeletionRow.id)
            )
            return [(row.kind, row.id) for row in rows]

    def deleted_in_mlflow(self, ids: Sequence[str]) -> None:
        """Notes that MLflow has these no more."""
        with self._database.session() as session:
            session.execute(delete(MlflowDeletionRow).where(MlflowDeletionRow.id.in_(list(ids))))


def _gone(session: Session, name: str, which: ColumnElement[bool]) -> Deletion:
    runs, prompts = session.execute(select(func.count(RunRow.id), func.sum(RunRow.prompts_done)).where(which)).one()
    return Deletion(name, runs, prompts or 0)


def _check_idle(session: Session, jobs: Sequence[str]) -> None:
    if session.scalar(select(JobRow.id).where(JobRow.id.in_(list(jobs)), JobRow.status.in_(UNENDED)).limit(1)):
        raise InvalidSetting("This is under way and cannot be deleted: cancel it first, or wait for its end.")


def _delete_runs(session: Session, which: ColumnElement[bool]) -> None:
    """Generations and traces go by the foreign keys' cascade."""
    ids = list(session.scalars(select(RunRow.id).where(which)))
    session.expunge_all()  # of what the statements below delete nothing is to be written
    session.execute(delete(RunRow).where(RunRow.id.in_(ids)))
    session.execute(delete(JobRow).where(JobRow.id.in_(ids)))
    session.add_all(MlflowDeletionRow(id=id, kind="run") for id in ids)


def _delete_experiment(session: Session, id: str) -> None:
    session.execute(delete(JobRow).where(JobRow.id == id))
    session.execute(delete(ExperimentRow).where(ExperimentRow.id == id))
    session.add(MlflowDeletionRow(id=id, kind="experiment"))
