"""Conversion from rows to the values that leave a session, and from values to what a row can hold."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from fsd_core.config import RunConfig
from fsd_core.config.calibration_config import read_sweep
from fsd_core.storage.database.tables import Base, ExperimentRow, GenerationRow, JobRow, RunRow, WorkerRow
from fsd_core.storage.records import (
    UNENDED,
    ExperimentView,
    GenerationView,
    JobView,
    MeasurementSession,
    RunView,
    WorkerView,
)

V = TypeVar("V", GenerationView, JobView, WorkerView)


def _columns(view: type[V], row: Base, **more: Any) -> V:
    return view(**{field.name: getattr(row, field.name) for field in fields(view) if field.name not in more}, **more)


def generation_view(row: GenerationRow) -> GenerationView:
    return _columns(GenerationView, row)


def job_view(row: JobRow) -> JobView:
    return _columns(JobView, row)


def worker_view(row: WorkerRow, at: datetime) -> WorkerView:
    """Return a worker as it is at a time by the database's clock."""
    return _columns(WorkerView, row, age=abs((at - row.heartbeat_at).total_seconds()))


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
