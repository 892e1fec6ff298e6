"""Tables of work: jobs with their streams, workers, and what is to be deleted in MLflow."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    Index,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from fsd_core.storage.database.tables.table_base import Base, now


class JobRow(Base):
    """Work for the worker. A claim holds a lease, and a job whose lease expired is claimed again."""

    __tablename__ = "jobs"
    __table_args__ = (Index("ix_jobs_status_priority", "status", "priority", "created_at"),)
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))  # the kind of a fsd_core.storage.messages.JobMessage
    payload: Mapped[dict[str, Any]]
    priority: Mapped[int] = mapped_column(default=0)  # higher first, because a person waits for the playground
    status: Mapped[str] = mapped_column(String(16), default="queued")
    error: Mapped[str | None] = mapped_column(Text)
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    claim_token: Mapped[str | None] = mapped_column(String(32))
    lease_expires_at: Mapped[datetime | None]
    attempts: Mapped[int] = mapped_column(default=0)  # claims so far
    lost_workers: Mapped[int] = mapped_column(default=0)  # claims whose worker died
    progress: Mapped[int] = mapped_column(default=0)  # progress when a worker was last lost
    stalled: Mapped[int] = mapped_column(default=0)  # workers lost in a row without progress or a prompt to blame
    bytes_done: Mapped[int | None] = mapped_column(BigInteger)  # of a fetch of models
    bytes_total: Mapped[int | None] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(default=now)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class StreamChunkRow(Base):
    """Output of a playground job, in order; the page polls from the last chunk that it has seen."""

    __tablename__ = "stream_chunks"
    __table_args__ = (UniqueConstraint("job_id", "sequence"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    sequence: Mapped[int]
    payload: Mapped[dict[str, Any]]


class MlflowDeletionRow(Base):
    """A run or an experiment that was deleted here but not yet in MLflow."""

    __tablename__ = "mlflow_deletions"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))  # run, experiment
    created_at: Mapped[datetime] = mapped_column(default=now)


class WorkerRow(Base):
    """A worker, as the pages see it: alive if its heartbeat is recent, and its activity."""

    __tablename__ = "workers"
    name: Mapped[str] = mapped_column(String(40), primary_key=True)  # empty: that of a home
    pid: Mapped[int]
    host: Mapped[str]
    device: Mapped[str]
    activity: Mapped[str]
    started_at: Mapped[datetime]
    heartbeat_at: Mapped[datetime]
    memory: Mapped[int | None] = mapped_column(BigInteger)  # bytes that the device has; None: not known
