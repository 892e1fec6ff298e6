"""Runs: created, queried, started and ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Unpack

from sqlalchemy import and_, delete, func, null, or_, select, update
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.model_names import checked_length
from fsd_core.errors import WrongState
from fsd_core.storage.database.reviews import count_moves
from fsd_core.storage.database.rows import run_view
from fsd_core.storage.database.run_queries import RunFilters, filtered, listed, order_of, ordinary
from fsd_core.storage.database.store import Store, changed, insert, new_id, unknown
from fsd_core.storage.database.tables import (
    ExperimentRow,
    GenerationRow,
    JobRow,
    MeasurementSessionRow,
    RunRow,
    SettingRow,
    now,
)
from fsd_core.storage.messages import ExperimentJob, ExperimentRunJob, RunJob
from fsd_core.storage.records import UNDER_WAY, UNENDED, RunName, RunValues, RunView


class RunStore(Store):
    def create_run(self, config: RunConfig, experiment_id: str | None = None) -> str:
        """Queue a run and return its id."""
        with self._database.session() as session:
            return add_runs(session, [config], experiment_id)[0]

    def run(self, id: str) -> RunView:
        """Return a run. Raises ``UnknownName``."""
        runs = self.runs([id])
        if not runs:
            raise unknown("run", id)
        return runs[0]

    def runs(
        self,
        ids: Iterable[str] | None = None,
        *,
        order_by: str = "created_at",
        descending: bool = True,
        limit: int | None = 50,
        offset: int = 0,
        **filters: Unpack[RunFilters],
    ) -> list[RunView]:
        """Return runs in order of ``order_by``, one of ``RUN_ORDERS``. Those without a value come last."""
        order = order_of(order_by)
        order = order.desc() if descending else order.asc()
        statement = filtered(select(RunRow, ExperimentRow.name), ids, **filters)
        statement = statement.order_by(order.nulls_last(), RunRow.position, RunRow.id).limit(limit).offset(offset)
        with self._database.session(readonly=True) as session:
            return [run_view(run, name) for run, name in session.execute(statement)]

    def run_names(self, limit: int) -> list[RunName]:
        """Return the latest runs by name, without archived ones and rounds of calibrations. Much faster than reading
        them whole."""
        columns = (
            RunRow.id, SettingRow.label, RunRow.seed, ExperimentRow.name, RunRow.task, RunRow.created_at,
            SettingRow.pair,
        )  # fmt: skip
        statement = select(*columns).select_from(RunRow).join(RunRow.setting).outerjoin(RunRow.experiment)
        statement = statement.where(listed(), ordinary())
        statement = statement.order_by(RunRow.created_at.desc(), RunRow.position, RunRow.id).limit(limit)
        with self._database.session(readonly=True) as session:
            return [RunName(*row) for row in session.execute(statement)]

    def runs_in_mlflow(self, mlflow_run_ids: Collection[str]) -> list[str]:
        """Return the ids of the runs that these runs of MLflow are copies of."""
        statement = select(RunRow.id).where(RunRow.mlflow_run_id.in_(mlflow_run_ids))
        with self._database.session(readonly=True) as session:
            return list(session.scalars(statement))

    def run_values(self) -> RunValues:
        """Return the pairs, tasks and rules that any run has."""
        with self._database.session(readonly=True) as session:
            tasks = session.scalars(select(RunRow.task).distinct())
            names = {task.partition("@")[0] for task in tasks}
            measured = select(SettingRow.pair, SettingRow.acceptance).where(
                select(RunRow.id).where(RunRow.setting_id == SettingRow.id).exists()
            )
            settings = session.execute(measured.distinct()).all()
        pairs, rules = ({row[i] for row in settings} for i in range(2))
        return RunValues(*(tuple(sorted(values)) for values in (pairs, names, rules)))

    def count_runs(self, ids: Iterable[str] | None = None, **filters: Unpack[RunFilters]) -> int:
        with self._database.session(readonly=True) as session:
            return session.scalar(filtered(select(func.count(RunRow.id)), ids, **filters)) or 0

    def measured_prompts(self) -> tuple[int, int]:
        """Return how many prompts are done, and of how many, of all that is being measured: of an experiment all runs.
        Both are 0 if nothing is."""
        running = RunRow.status == "running"
        experiments = select(RunRow.experiment_id).where(running, RunRow.experiment_id.is_not(None))
        parts = or_(RunRow.experiment_id.in_(experiments), and_(RunRow.experiment_id.is_(None), running))
        statement = select(func.sum(RunRow.prompts_done), func.sum(RunRow.prompts_total)).where(parts)
        with self._database.session(readonly=True) as session:
            done, total = session.execute(statement).one()
        return int(done or 0), int(total or 0)

    def start_run(self, id: str, provenance: dict[str, Any]) -> None:
        """Mark a run as running, for the first time or again. Raises ``InvalidSetting`` if it has ended."""
        values = {"status": "running", "provenance": provenance, "error": None}
        if not self._change(id, values | {"started_at": func.coalesce(RunRow.started_at, now())}):
            raise WrongState(f"The run {id} has ended already: start a new one with the same settings.")

    def finish_run(self, id: str, metrics: dict[str, Any]) -> None:
        """End a run with its metrics. An ended run stays unchanged, here and in the next two methods."""
        self._end(id, status="finished", metrics=metrics)

    def fail_run(self, id: str, error: str, metrics: dict[str, Any] | None = None) -> None:
        """End a run with the sentence that explains why, and the metrics of the finished prompts."""
        self._end(id, status="failed", error=error, metrics=metrics)

    def cancel_run(self, id: str, metrics: dict[str, Any] | None = None) -> None:
        """End a run because a user asked for it, with the metrics of the finished prompts."""
        self._end(id, status="cancelled", metrics=metrics)

    def stop_runs(self, owner: str) -> None:
        """Mark the unended runs of an experiment, or a single run, as stopped: their process ends before they do. They
        wait for somebody to resume them."""
        with self._database.session() as session:
            session.execute(
                update(RunRow).where(of_owner(owner), RunRow.status.in_(UNDER_WAY)).values(status="stopped")
            )

    def reopen_runs(self, ids: Sequence[str], *, enqueue: bool = True) -> list[str]:
        """Queue ended runs of one experiment, or one single run, again. Returns the ids of those with work left.

        Done prompts stay, and failed ones are repeated. With ``enqueue`` the work is left to the worker, under the job
        of the experiment or of the run, which is created if missing. Raises ``UnknownName``, and ``InvalidSetting``
        while the runs are under way or if no work is left.
        """
        with self._database.session() as session:
            statement = select(RunRow).where(RunRow.id.in_(list(ids))).order_by(RunRow.position)
            rows = list(session.scalars(statement.with_for_update(of=RunRow)))
            if len(rows) < len(ids):
                raise unknown("run", next(iter(set(ids) - {row.id for row in rows}), "none"))
            owner = rows[0].experiment_id or rows[0].id
            job = session.get(JobRow, owner, with_for_update=True)
            check_ended(job)
            reopened = [row.id for row in rows if _reopen(session, row)]
            if not reopened:
                raise WrongState("Nothing is left to do: every prompt was done, and none of them failed.")
            if enqueue:
                queue_again(
                    session, job, RunJob(owner) if rows[0].experiment_id is None else ExperimentJob(owner), owner
                )
            return reopened

    def unsynced_runs(self) -> list[RunView]:
        """Return ended runs that MLflow does not have, oldest first."""
        statement = select(RunRow, ExperimentRow.name).outerjoin(RunRow.experiment)
        statement = statement.where(RunRow.status.not_in(UNENDED), RunRow.mlflow_synced_at.is_(None))
        with self._database.session(readonly=True) as session:
            rows = session.execute(statement.order_by(RunRow.created_at, RunRow.position, RunRow.id))
            return [run_view(run, name) for run, name in rows]

    def mark_synced(self, copied: RunView, mlflow_run_id: str, moves: int = 0) -> None:
        """Record that MLflow has the run as it was when ``copied``, with this number of alias ``moves``.

        If an alias has moved since, its experiment was renamed or the run reopened, the copy must be made again.
        """
        with self._database.session() as session:
            run = session.get(RunRow, copied.id, with_for_update={"of": RunRow})
            if run is None:  # deleted meanwhile
                return
            name = run.experiment.name if run.experiment else None
            same = (name, run.finished_at, count_moves(session)) == (copied.experiment_name, copied.finished_at, moves)
            run.mlflow_run_id = mlflow_run_id
            run.mlflow_synced_at = now() if same else None

    def _end(self, id: str, **values: Any) -> None:
        self._change(id, values | {"finished_at": now()})

    def _change(self, id: str, values: dict[str, Any]) -> bool:
        with self._database.session() as session:
            touched = changed(session, update(RunRow).where(RunRow.id == id, RunRow.status.in_(UNENDED)).values(values))
            if touched == 0 and session.get(RunRow, id) is None:
                raise unknown("run", id)
            return touched == 1


def of_owner(id: str) -> ColumnElement[bool]:
    """Return the condition that a run belongs to the job with this id: it is of that experiment, or is that run."""
    return or_(RunRow.experiment_id == id, RunRow.id == id)


def check_ended(job: JobRow | None) -> None:
    """Raise ``InvalidSetting`` while the job is queued or running."""
    if job is not None and job.status in UNENDED:
        raise WrongState("This work is under way: wait for its end, or cancel it first.")


def queue_again(session: Session, job: JobRow | None, message: RunJob | ExperimentJob, id: str) -> None:
    """Leave work to the worker: under its ended job, or under a new one with this id."""
    if job is None:
        session.add(JobRow(id=id, kind=message.kind, payload=message.as_json()))
    else:
        job.status, job.error, job.cancel_requested = "queued", None, False
        job.finished_at, job.stalled = None, 0


def count_losses(session: Session, prompts: Mapping[str, Sequence[int]]) -> None:
    """Count a lost worker against the prompts that it was generating: positions by run."""
    for run in session.scalars(select(RunRow).where(RunRow.id.in_(list(prompts)))):
        losses = dict(run.losses or {})
        for position in prompts[run.id]:
            losses[str(position)] = losses.get(str(position), 0) + 1
        run.losses = losses or None


def _reopen(session: Session, run: RunRow) -> bool:
    """Queue an ended run again if work is left, without its failed prompts. Returns whether it has work left."""
    if run.status in UNENDED:
        run.status = "queued" if run.status == "stopped" else run.status
        return True
    failed = GenerationRow.run_id == run.id, GenerationRow.outcome == "failed"
    count = changed(session, delete(GenerationRow).where(*failed))
    if run.status == "finished" and not count:
        return False
    # Any worker may take it again.
    session.execute(delete(JobRow).where(JobRow.id == run.id, JobRow.kind == ExperimentRunJob.kind))
    empty = ~select(GenerationRow.id).where(GenerationRow.sitting_id == MeasurementSessionRow.id).exists()
    session.execute(delete(MeasurementSessionRow).where(MeasurementSessionRow.run_id == run.id, empty))
    seconds = select(func.coalesce(func.sum(GenerationRow.seconds), 0.0)).where(GenerationRow.run_id == run.id)
    run.prompts_done, run.decoding_seconds = run.prompts_done - count, session.scalar(seconds) or 0.0
    run.status, run.error, run.metrics, run.losses = "queued", None, None, None
    run.finished_at = run.mlflow_synced_at = None
    return True


def add_runs(
    session: Session,
    configs: Sequence[RunConfig],
    experiment_id: str | None,
    first: int = 0,
    predicted: Mapping[str, dict[str, Any]] | None = None,
) -> list[str]:
    """Queue runs, in order from the position ``first``, and add their missing settings. Returns the runs' ids.

    ``predicted``: the predicted metrics of settings, by their ids.
    """
    # Sorted, so that two sweeps that start at once do not wait for rows that the other has locked.
    for setting in sorted(dict.fromkeys(config.setting for config in configs), key=lambda setting: setting.id):
        add_setting(session, setting)
    moment, expected = now(), predicted or {}  # one time for all, so that a list by time keeps their order
    runs = [
        RunRow(
            id=new_id(), experiment_id=experiment_id, position=position, setting_id=config.setting.id,
            task=config.task, seed=config.seed, config=config.as_json(), prompts_total=config.limit,
            created_at=moment, predicted=expected.get(config.setting.id) or null(),
        )
        for position, config in enumerate(configs, first)
    ]  # fmt: skip
    session.add_all(runs)
    return [run.id for run in runs]


def add_setting(session: Session, setting: SettingConfig) -> None:
    """Add a setting, unless it is there, under the name by which its models are known."""
    decoding, pair = setting.decoding, known_pair(session, setting.identity) or setting.pair
    row = insert(session, SettingRow).values(
        id=setting.id, pair=checked_length(pair), label=decoding.label, acceptance=decoding.acceptance.kind,
        threshold=decoding.threshold, config=setting.as_json(), created_at=now(),
    )  # fmt: skip
    # It may exist, even since this very moment, and with the label of an earlier version.
    session.execute(row.on_conflict_do_update(index_elements=[SettingRow.id], set_={"label": decoding.label}))


def known_pair(session: Session, identity: str) -> str:
    """Return the name by which the models with an identity are known; empty if they are not."""
    return (identity and session.scalar(select(SettingRow.pair).where(of_models(identity)).limit(1))) or ""


def of_models(identity: str) -> ColumnElement[bool]:
    """Return the condition that a setting is of the models with an identity."""
    return SettingRow.config["identity"].as_string() == identity
