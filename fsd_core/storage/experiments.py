"""Experiments: created together, read together, annotated and deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fsd_core.config import RunConfig, SweepConfig
from fsd_core.config.calibration_config import GRANTED, CalibrationConfig, read_sweep
from fsd_core.config.model_names import title_of_models
from fsd_core.errors import NotApplicable, Overtaken, Taken, WrongState
from fsd_core.frozen import check_fields
from fsd_core.roles import LOCAL, Person
from fsd_core.storage.messages import ExperimentJob
from fsd_core.storage.opening import Store, get_row, new_id, storable, unknown
from fsd_core.storage.records import (
    LONGEST_RUN_NAME,
    UNENDED,
    Deletion,
    Edit,
    ExperimentName,
    ExperimentView,
    Subject,
    checked_name,
)
from fsd_core.storage.runs import add_runs, check_ended, experiment_view, queue_again, run_view
from fsd_core.storage.tables import ChangeRow, ExperimentRow, JobRow, MlflowDeletionRow, RunRow


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

    def changes(self, *, subject: str | None = None, experiment_id: str | None = None, limit: int) -> list[ChangeRow]:
        """Return the latest changes first: all, those of one run or experiment, or those of an experiment and its
        runs."""
        statement = select(ChangeRow).order_by(ChangeRow.id.desc()).limit(limit)
        if subject is not None:
            statement = statement.where(ChangeRow.subject == subject)
        if experiment_id is not None:
            statement = statement.where(ChangeRow.experiment_id == experiment_id)
        with self._database.session(readonly=True) as session:
            return list(session.scalars(statement))


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


class ExperimentStore(Store):
    def create_experiment(self, sweep: SweepConfig, *, enqueue: bool = True, id: str | None = None) -> str:
        """Create an experiment with its queued runs and, unless the caller does them itself, its job; all or nothing.

        Returns the id, which is also its job's. A caller that chooses it may ask again: an experiment is created once.
        Raises ``Taken`` for an id that is of other content.
        """
        name = checked_name(storable(sweep.name).strip() or storable(_default_name(sweep)))
        id = id or new_id()
        try:
            with self._database.session() as session:
                if (row := session.get(ExperimentRow, id)) is not None:
                    if {**read_sweep(row.config).as_json(), GRANTED: None} != {**sweep.as_json(), GRANTED: None}:
                        raise Taken(f"The key {id} is that of another experiment: choose a new one for each.")
                    return id
                session.add(ExperimentRow(id=id, name=name, config=sweep.as_json()))
                session.flush()
                add_runs(session, sweep.runs(), id)
                if enqueue:
                    session.add(JobRow(id=id, kind=ExperimentJob.kind, payload=ExperimentJob(id).as_json()))
        except IntegrityError:  # the same was asked at the same moment
            with self._database.session(readonly=True) as session:
                if session.get(ExperimentRow, id) is None:
                    raise Taken(f"The id {id} is that of something else: choose another.") from None
        return id

    def extend_experiment(
        self, id: str, configs: Sequence[RunConfig], predicted: Mapping[str, dict[str, Any]] | None = None
    ) -> list[str]:
        """Queue more runs after those of an experiment, all or nothing. Returns their ids.

        ``predicted``: the predicted metrics of settings, by their ids. Raises ``UnknownName``.
        """
        with self._database.session() as session:
            get_row(session, ExperimentRow, id, "experiment")
            last = session.scalar(select(func.max(RunRow.position)).where(RunRow.experiment_id == id))
            return add_runs(session, configs, id, 0 if last is None else last + 1, predicted)

    def grant_minutes(self, id: str, minutes: float, *, enqueue: bool = True) -> None:
        """Give an ended calibration more time. The worker then continues it, unless the caller does.

        Raises ``UnknownName``, and ``InvalidSetting`` for another experiment, while it is under way, and for minutes
        out of range.
        """
        with self._database.session() as session:
            row = session.get(ExperimentRow, id, with_for_update=True)
            if row is None:
                raise unknown("experiment", id)
            config = read_sweep(row.config)
            if not isinstance(config, CalibrationConfig):
                raise NotApplicable(f"The experiment {id} is no calibration: only these are given time.")
            job = session.get(JobRow, id, with_for_update=True)
            check_ended(job)
            values = config.as_json() | {GRANTED: config.more_minutes + minutes}
            row.config = check_fields(CalibrationConfig, {GRANTED: "The time added"}, **values).as_json()
            if enqueue:
                queue_again(session, job, ExperimentJob(id), id)

    def time_again(self, id: str, configs: Sequence[RunConfig], *, enqueue: bool = True) -> list[str]:
        """Queue runs that time settings of an ended experiment again. The worker does them, unless the caller does.

        Returns their ids. Raises ``UnknownName``, and ``InvalidSetting`` while the experiment is under way.
        """
        with self._database.session() as session:
            get_row(session, ExperimentRow, id, "experiment")
            job = session.get(JobRow, id, with_for_update=True)
            check_ended(job)
            last = session.scalar(select(func.max(RunRow.position)).where(RunRow.experiment_id == id))
            ids = add_runs(session, configs, id, 0 if last is None else last + 1)
            if enqueue:
                queue_again(session, job, ExperimentJob(id), id)
            return ids

    def experiment(self, id: str) -> ExperimentView:
        """Return an experiment. Raises ``UnknownName``."""
        with self._database.session(readonly=True) as session:
            views = _views(session, [get_row(session, ExperimentRow, id, "experiment")])
            return views[0]

    def experiments(self, limit: int = 50, offset: int = 0, *, archived: bool = True) -> list[ExperimentView]:
        """Return the newest experiments first; ``archived``: with archived ones."""
        newest = (
            select(ExperimentRow)
            .order_by(ExperimentRow.created_at.desc(), ExperimentRow.id)
            .limit(limit)
            .offset(offset)
        )
        if not archived:
            newest = newest.where(~ExperimentRow.archived)
        with self._database.session(readonly=True) as session:
            return _views(session, list(session.scalars(newest)))

    def experiment_names(self, limit: int) -> list[ExperimentName]:
        """Return the latest experiments by name, without archived ones."""
        pair = ExperimentRow.config["pair"].as_string()
        columns = ExperimentRow.id, ExperimentRow.name, func.count(RunRow.id), ExperimentRow.created_at, pair
        statement = (
            select(*columns).outerjoin(ExperimentRow.runs).where(~ExperimentRow.archived).group_by(ExperimentRow.id)
        )
        statement = statement.order_by(ExperimentRow.created_at.desc(), ExperimentRow.id).limit(limit)
        with self._database.session(readonly=True) as session:
            return [ExperimentName(*row) for row in session.execute(statement)]

    def set_experiment_mlflow(self, experiment_id: str, mlflow_run_id: str) -> None:
        """Record the MLflow run under which the experiment's runs are nested."""
        with self._database.session() as session:
            row = session.get(ExperimentRow, experiment_id)
            if row is None:
                raise unknown("experiment", experiment_id)
            row.mlflow_run_id = mlflow_run_id


def _default_name(sweep: SweepConfig) -> str:
    """Return the name of an experiment that nobody has named. Of models it has the titles, and of a task no version."""
    task, title = sweep.task.partition("@")[0], title_of_models(sweep.pair)
    name = f"{task} on {title or sweep.pair}"
    if len(name) > LONGEST_RUN_NAME and not title:  # of a long folder
        name = f"{task} on {sweep.pair.rpartition('/')[2]}"
    return name if len(name) <= LONGEST_RUN_NAME else f"{name[: LONGEST_RUN_NAME - 1]}…"


def _views(session: Session, rows: list[ExperimentRow]) -> list[ExperimentView]:
    """Return the views of experiments with two queries, however many there are."""
    ids = [row.id for row in rows]
    jobs = {job.id: job for job in session.scalars(select(JobRow).where(JobRow.id.in_(ids)))}
    runs: dict[str, list[RunRow]] = {id: [] for id in ids}
    for run in session.scalars(select(RunRow).where(RunRow.experiment_id.in_(ids)).order_by(RunRow.position)):
        runs[str(run.experiment_id)].append(run)
    return [
        experiment_view(row, jobs.get(row.id), tuple(run_view(run, row.name) for run in runs[row.id])) for row in rows
    ]
