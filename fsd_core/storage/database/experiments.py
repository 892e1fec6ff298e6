"""Experiments: a sweep, its runs and its job, created together and read together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fsd_core.config import RunConfig, SweepConfig
from fsd_core.config.calibration_config import GRANTED, CalibrationConfig, read_sweep
from fsd_core.config.model_names import title_of_models
from fsd_core.errors import NotApplicable, Taken
from fsd_core.frozen import check_fields
from fsd_core.storage.database.connection import storable
from fsd_core.storage.database.rows import experiment_view, run_view
from fsd_core.storage.database.runs import add_runs, check_ended, queue_again
from fsd_core.storage.database.store import Store, get_row, new_id, unknown
from fsd_core.storage.database.tables import ExperimentRow, JobRow, RunRow
from fsd_core.storage.edits import LONGEST_RUN_NAME, checked_name
from fsd_core.storage.messages import ExperimentJob
from fsd_core.storage.records import ExperimentName, ExperimentView


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
