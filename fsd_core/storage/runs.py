"""Runs and their settings: created, queried, shared, started and ended.

An experiment shared among workers: each of its runs is a job of its own, which any worker claims under its lease.

Meanwhile the experiment's job is running without a claim. When the last of its runs' jobs has ended, it waits for a
worker again, which compares the runs and ends it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict, Unpack

from sqlalchemy import ColumnElement, Select, and_, delete, false, func, null, or_, select, update
from sqlalchemy.orm import Session

from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.calibration_config import read_sweep
from fsd_core.config.model_names import checked_length
from fsd_core.errors import Taken, UnknownChoice, WrongState
from fsd_core.frozen import text_digest
from fsd_core.metrics import METRICS
from fsd_core.storage.messages import ExperimentJob, ExperimentRunJob, RunJob
from fsd_core.storage.opening import Store, changed, dialect_insert, get_row, new_id, unknown
from fsd_core.storage.records import (
    ORIGIN,
    UNDER_WAY,
    UNENDED,
    ExperimentView,
    GenerationView,
    MeasurementSession,
    RunName,
    RunValues,
    RunView,
    SettingSummary,
    SettingView,
)
from fsd_core.storage.reviews import count_moves
from fsd_core.storage.tables import (
    ExperimentRow,
    GenerationRow,
    JobRow,
    MeasurementSessionRow,
    OwnPairRow,
    RunRow,
    SettingRow,
    now,
)


def generation_view(row: GenerationRow) -> GenerationView:
    return GenerationView(**{column.name: getattr(row, column.name) for column in GenerationRow.__table__.columns})


def run_view(row: RunRow, experiment_name: str | None) -> RunView:
    config = RunConfig.model_validate(row.config).at(row.setting.pair)
    return RunView(
        id=row.id, experiment_id=row.experiment_id, experiment_name=experiment_name, position=row.position,
        setting_id=row.setting_id, pair=row.setting.pair, label=row.setting.label, decoding=config.setting.decoding,
        task=row.task, seed=row.seed, config=config, status=row.status, error=row.error,
        prompts_done=row.prompts_done, prompts_total=row.prompts_total, decoding_seconds=row.decoding_seconds,
        losses={int(position): count for position, count in (_fields(row.losses) or {}).items()},
        metrics=_fields(row.metrics), provenance=_fields(row.provenance),
        measurement_sessions=tuple(
            MeasurementSession(session.id, _fields(session.conditions) or {}, session.started_at)
            for session in row.measurement_sessions
        ),
        created_at=row.created_at, started_at=row.started_at, finished_at=row.finished_at,
        mlflow_run_id=row.mlflow_run_id, predicted=_fields(row.predicted), **_annotations(row),
    )  # fmt: skip


def _annotations(row: RunRow | ExperimentRow) -> dict[str, Any]:
    return {"note": row.note, "tags": tuple(row.tags.split()), "archived": row.archived, "edits": row.edits}


def _fields(value: Any) -> dict[str, Any] | None:
    """Return a JSON object. Raises ``TypeError`` for a damaged one."""
    if value is not None and not isinstance(value, dict):
        raise TypeError(f"expected an object, got {type(value).__name__}")
    return value


def experiment_view(row: ExperimentRow, job: JobRow | None, runs: tuple[RunView, ...]) -> ExperimentView:
    """Return the view of an experiment; ``runs`` are in order."""
    status = _experiment_status(job, runs)
    errors = [job.error if job else None, *(run.error for run in runs)]
    ends = [run.finished_at for run in runs if run.finished_at]
    starts = [run.started_at for run in runs if run.started_at]
    config = read_sweep(row.config)
    if config.identity and runs:
        config = config.model_copy(update={"pair": runs[0].pair})
    return ExperimentView(
        id=row.id, name=row.name, config=config, status=status,
        error=next(filter(None, errors), None), cancel_requested=bool(job and job.cancel_requested),
        job_id=job.id if job else None, lost_workers=job.lost_workers if job else 0, runs=runs,
        decoding_seconds=sum(run.decoding_seconds for run in runs), created_at=row.created_at,
        started_at=min(starts, default=None),
        finished_at=max(ends, default=None) if status not in UNENDED else None,
        mlflow_run_id=row.mlflow_run_id, **_annotations(row),
    )  # fmt: skip


def _experiment_status(job: JobRow | None, runs: tuple[RunView, ...]) -> str:
    if job and job.status != "finished":
        return job.status
    statuses = {run.status for run in runs}
    if "stopped" in statuses and "running" not in statuses:
        return "stopped"
    if not statuses.isdisjoint(UNENDED):
        return "queued" if statuses == {"queued"} else "running"
    return next((status for status in ("failed", "cancelled") if status in statuses), "finished")


_COLUMNS: dict[str, Any] = {
    "created_at": RunRow.created_at, "started_at": RunRow.started_at, "finished_at": RunRow.finished_at,
    "position": RunRow.position, "task": RunRow.task, "seed": RunRow.seed, "status": RunRow.status,
    "prompts_done": RunRow.prompts_done, "prompts_total": RunRow.prompts_total, "experiment_name": ExperimentRow.name,
    "pair": SettingRow.pair, "label": SettingRow.label, "acceptance": SettingRow.acceptance,
    "threshold": SettingRow.threshold,
}  # fmt: skip
LONGEST_SEARCH = 200
"""characters that are searched for; the rest is ignored"""
RUN_ORDERS = (*_COLUMNS, *METRICS)
"""Values by which runs can be sorted."""


class RunFilters(TypedDict, total=False):
    """Filters that must all hold; ``None`` is no filter. ``search`` looks into names, labels, notes and tags, and
    for the beginning of ids."""

    pair: str | None
    task: str | None
    """for a custom task, the name of all versions or of one"""
    acceptance: str | None
    status: str | None
    experiment_id: str | None
    setting_id: str | None
    search: str | None
    id_prefix: str | None
    """the beginning of a run's id, or of its experiment's"""
    archived: bool | None
    """whether the run or its experiment is archived"""
    calibration_rounds: bool | None
    """whether the run is a round of a calibration"""


def filtered(
    statement: Select,
    ids: Iterable[str] | None,
    *,
    pair: str | None = None,
    task: str | None = None,
    acceptance: str | None = None,
    status: str | None = None,
    experiment_id: str | None = None,
    setting_id: str | None = None,
    search: str | None = None,
    id_prefix: str | None = None,
    archived: bool | None = None,
    calibration_rounds: bool | None = None,
) -> Select:
    """Return the statement with the runs that the filters leave: ``ids``, and those of :class:`RunFilters`."""
    statement = statement.select_from(RunRow).join(RunRow.setting).outerjoin(RunRow.experiment)
    if ids is not None:
        statement = statement.where(RunRow.id.in_(list(ids)))
    if task is not None:  # the name alone of a custom task means all versions
        versions = RunRow.task.startswith(f"{task}@", autoescape=True)
        statement = statement.where((RunRow.task == task) | versions)
    exact = (SettingRow.pair, pair), (SettingRow.acceptance, acceptance), (RunRow.status, status)
    for column, value in (*exact, (RunRow.experiment_id, experiment_id), (RunRow.setting_id, setting_id)):
        if value is not None:
            statement = statement.where(column == value)
    if id_prefix is not None:
        begins = (id.startswith(id_prefix, autoescape=True) for id in (RunRow.id, RunRow.experiment_id))
        statement = statement.where(or_(*begins))
    if archived is not None:
        statement = statement.where(~listed() if archived else listed())
    if calibration_rounds is not None:
        statement = statement.where(~ordinary() if calibration_rounds else ordinary())
    for word in (search or "")[:LONGEST_SEARCH].split():
        note_columns = RunRow.tags, RunRow.note, ExperimentRow.tags, ExperimentRow.note
        columns = (SettingRow.label, SettingRow.pair, RunRow.task, ExperimentRow.name, *note_columns)
        inside = [text_column.icontains(word, autoescape=True) for text_column in columns]
        statement = statement.where(or_(RunRow.id.istartswith(word, autoescape=True), named_like(word), *inside))
    return statement


def named_like(word: str) -> ColumnElement[bool]:
    """Return the condition that somebody gave a setting's pair a name with this word."""
    return SettingRow.pair.in_(select(OwnPairRow.models).where(OwnPairRow.name.icontains(word, autoescape=True)))


def listed() -> ColumnElement[bool]:
    """Return the condition that neither a run nor its experiment is archived."""
    return ~RunRow.archived & ~func.coalesce(ExperimentRow.archived, false())


def ordinary() -> ColumnElement[bool]:
    """Return the condition that a run is no round of a calibration. It reads each experiment's config, not each
    run's."""
    calibrations = select(ExperimentRow.id).where(ExperimentRow.config["goal"].as_string().is_not(None))
    return or_(RunRow.experiment_id.is_(None), RunRow.experiment_id.not_in(calibrations))


def order_of(name: str) -> ColumnElement[Any]:
    """Return the column that runs are sorted by. Raises ``InvalidSetting`` if ``name`` is not in ``RUN_ORDERS``."""
    if name in METRICS:
        return RunRow.metrics[name].as_float()
    if name not in _COLUMNS:
        raise UnknownChoice(f"Runs cannot be sorted by '{name}': expected one of {', '.join(RUN_ORDERS)}.")
    return _COLUMNS[name]


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

    def under_way_without_job(self, owners: Sequence[str]) -> list[str]:
        """Return which of these experiments and single runs are under way without a job: a process has them."""
        owner = func.coalesce(RunRow.experiment_id, RunRow.id)
        found = or_(RunRow.experiment_id.in_(owners), RunRow.id.in_(owners))
        has_job = select(JobRow.id).where(JobRow.id == owner).exists()
        statement = select(owner).where(found, RunRow.status.in_(UNDER_WAY), ~has_job).distinct()
        with self._database.session(readonly=True) as session:
            return list(session.scalars(statement))

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
    row = dialect_insert(session, SettingRow).values(
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


class LoggedRunStore(Store):
    def log_run(
        self, config: RunConfig, metrics: dict[str, Any], origin: dict[str, Any], key: str = ""
    ) -> tuple[str, bool]:
        """Store a run that was measured elsewhere. Returns its id, and whether it is new.

        With a ``key`` the same figures are stored once, however often they are sent. Raises ``InvalidSetting`` for a
        key that was used for others.
        """
        id = text_digest(f"measured elsewhere {key}")[:32] if key else new_id()
        moment, figures = now(), metrics
        with self._database.session() as session:
            add_setting(session, config.setting)
            values = {
                "id": id, "position": 0, "setting_id": config.setting.id, "task": config.task, "seed": config.seed,
                "config": config.as_json(), "status": "finished", "metrics": figures,
                "prompts_done": config.limit, "prompts_total": config.limit,
                "decoding_seconds": figures.get("seconds") or 0.0, "provenance": {ORIGIN: origin},
                "created_at": moment, "finished_at": moment,
            }  # fmt: skip
            row = dialect_insert(session, RunRow).values(values).on_conflict_do_nothing(index_elements=[RunRow.id])
            if session.execute(row.returning(RunRow.id)).first() is not None:
                return id, True
            stored = session.get_one(RunRow, id)
            known = stored.metrics or {}
            same = (stored.setting_id, stored.task, stored.prompts_total) == (
                config.setting.id,
                config.task,
                config.limit,
            )
            if not same or any(known[name] != figures[name] for name in known.keys() & figures.keys()):
                raise Taken(
                    f"The key {key[:60]!r} was used for other figures, of '{stored.setting.label}': choose another key."
                )
            return id, False


class RunShareStore(Store):
    def share_experiment(self, job_id: str, token: str) -> bool:
        """Queue each run of an experiment that has prompts left as a job of its own, and release the experiment's job.

        Returns ``False``, with nothing changed, if the claim is lost or fewer than two runs wait for their first job.
        A run that had one is left to the experiment's job, unless somebody has resumed it since.
        """
        with self._database.session() as session:
            claimed = JobRow.id == job_id, JobRow.claim_token == token, JobRow.status == "running"
            job = session.scalar(select(JobRow).where(*claimed).with_for_update())
            if job is None or job.cancel_requested:
                return False
            waiting = select(RunRow.id).outerjoin(JobRow, JobRow.id == RunRow.id).where(JobRow.id.is_(None))
            waiting = waiting.where(RunRow.experiment_id == job_id, RunRow.status.in_(UNENDED))
            waiting = waiting.where(RunRow.prompts_done < RunRow.prompts_total)
            ids = list(session.scalars(waiting.order_by(RunRow.position)))
            if len(ids) < 2:
                return False
            session.add_all(
                JobRow(
                    id=id, kind=ExperimentRunJob.kind, payload=ExperimentRunJob(job_id, id).as_json(),
                    priority=job.priority, created_at=job.created_at + timedelta(microseconds=number),
                )
                for number, id in enumerate(ids)
            )  # fmt: skip
            job.claim_token = job.lease_expires_at = None
            return True

    def waiting_run_jobs(self) -> list[str]:
        """Return the ids of unended jobs of single runs of experiments, in the order in which they are claimed."""
        unended = JobRow.kind == ExperimentRunJob.kind, JobRow.status.in_(UNENDED)
        order = JobRow.priority.desc(), JobRow.created_at, JobRow.id
        with self._database.session(readonly=True) as session:
            return list(session.scalars(select(JobRow.id).where(*unended).order_by(*order)))


def lock_sharing_job(session: Session, job_id: str) -> JobRow | None:
    """Lock and return the job of the experiment that a run's job belongs to; ``None`` for any other job.

    It is locked before the run's own: whoever cancels the experiment locks both in this order.
    """
    job = session.get(JobRow, job_id)
    if job is None or job.kind != ExperimentRunJob.kind:
        return None
    return session.get(JobRow, ExperimentRunJob.read(job.payload).experiment_id, with_for_update=True)


def shared_jobs(session: Session, experiment_id: str) -> list[JobRow]:
    """Lock and return the unended jobs of an experiment's runs."""
    unended = select(JobRow).where(*_unended(experiment_id)).order_by(JobRow.id)
    return list(session.scalars(unended.with_for_update()))


def is_shared(job: JobRow) -> bool:
    """Whether the runs of an experiment's job are jobs of their own now."""
    return job.status == "running" and job.claim_token is None


def close_sharing(session: Session, job: JobRow) -> None:
    """Queue the job of an experiment again if no job of its runs is left. The caller has locked it."""
    if is_shared(job) and not session.scalar(select(func.count(JobRow.id)).where(*_unended(job.id))):
        job.status = "queued"


def _unended(experiment_id: str) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of the unended jobs of an experiment's runs."""
    ids = select(RunRow.id).where(RunRow.experiment_id == experiment_id)
    return JobRow.id.in_(ids), JobRow.kind == ExperimentRunJob.kind, JobRow.status.in_(UNENDED)


class SettingStore(Store):
    def setting(self, id: str) -> SettingView:
        """Return a setting. Raises ``UnknownName``."""
        with self._database.session(readonly=True) as session:
            row = get_row(session, SettingRow, id, "setting")
            config = SettingConfig.model_validate(row.config).at(row.pair)
            return SettingView(row.id, row.pair, row.label, config, row.created_at)

    def pair_of(self, identity: str) -> str:
        """Return the name by which the models with an identity are known; empty if they are not."""
        with self._database.session(readonly=True) as session:
            return known_pair(session, identity)

    def place_models(self, identity: str, pair: str) -> None:
        """Record the name by which the models with an identity are known from now on."""
        with self._database.session() as session:
            session.execute(update(SettingRow).where(of_models(identity), SettingRow.pair != pair).values(pair=pair))

    def setting_names(self, ids: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return the labels and the pairs of settings, by their ids."""
        statement = select(SettingRow.id, SettingRow.label, SettingRow.pair).where(SettingRow.id.in_(list(ids)))
        with self._database.session(readonly=True) as session:
            return {row.id: (row.label, row.pair) for row in session.execute(statement)}

    def settings(
        self, search: str = "", limit: int = 50, offset: int = 0, *, dropped: bool = True, order_by: str = "last",
        descending: bool = True,
    ) -> list[SettingSummary]:  # fmt: skip
        """Return settings of at least one run in order of ``order_by``: when they were measured ``last``, ``label``,
        ``pair`` or ``runs``.

        ``dropped``: with those that were only measured while a calibration chose its finalists.
        """
        last = func.max(RunRow.created_at)
        orders = {"last": last, "label": SettingRow.label, "pair": SettingRow.pair, "runs": func.count(RunRow.id)}
        order = orders[order_by].desc() if descending else orders[order_by]
        columns = SettingRow.id, SettingRow.pair, SettingRow.label, func.count(RunRow.id), last
        statement = _matching(select(*columns), search, dropped).group_by(
            SettingRow.id, SettingRow.pair, SettingRow.label
        )
        statement = statement.order_by(order, SettingRow.id).limit(limit).offset(offset)
        with self._database.session(readonly=True) as session:
            rows = session.execute(statement).all()
            measured = (
                select(RunRow.setting_id, RunRow.task).where(RunRow.setting_id.in_([row[0] for row in rows])).distinct()
            )
            tasks: dict[str, list[str]] = {}
            for setting, task in session.execute(measured.order_by(RunRow.task)):
                tasks.setdefault(setting, []).append(task)
            return [
                SettingSummary(id, pair, label, runs, last, tuple(tasks.get(id, ())))
                for id, pair, label, runs, last in rows
            ]

    def count_settings(self, search: str = "", *, dropped: bool = True) -> int:
        with self._database.session(readonly=True) as session:
            return session.scalar(_matching(select(func.count(func.distinct(SettingRow.id))), search, dropped)) or 0


def _matching(statement: Select, search: str, dropped: bool) -> Select:
    statement = statement.select_from(SettingRow).join(RunRow, RunRow.setting_id == SettingRow.id)
    if not dropped:
        fresh = RunRow.config["first"].as_integer() >= ExperimentRow.config["choosing"].as_integer()
        selected = select(RunRow.setting_id).outerjoin(RunRow.experiment).where(or_(ordinary(), fresh))
        statement = statement.where(SettingRow.id.in_(selected))
    for word in search[:LONGEST_SEARCH].split():
        columns = (SettingRow.label, SettingRow.pair, RunRow.task)
        inside = [column.icontains(word, autoescape=True) for column in columns]
        statement = statement.where(or_(SettingRow.id.istartswith(word, autoescape=True), named_like(word), *inside))
    return statement
