"""Work that a process has or will have: jobs, and the workers that do them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

UNDER_WAY = ("queued", "running")
"""statuses of a run, an experiment or a job that a process has or will have"""

UNENDED = (*UNDER_WAY, "stopped")
"""statuses of work that has not ended; stopped work waits until somebody resumes it"""

ALIVE_SECONDS = 10.0
"""A worker whose heartbeat is older than this counts as gone."""


@dataclass(frozen=True, kw_only=True)
class JobView:
    """Work for the worker, and its status."""

    id: str
    kind: str
    payload: dict[str, Any]
    """as stored; the kind's class in ``messages`` reads it"""
    priority: int
    status: str
    error: str | None
    cancel_requested: bool
    claim_token: str | None
    lease_expires_at: datetime | None
    attempts: int
    """claims so far"""
    lost_workers: int
    """claims whose worker died"""
    stalled: int
    """workers lost in a row without progress or a prompt to blame"""
    bytes_done: int | None
    """of a fetch of models, once it has begun"""
    bytes_total: int | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class WorkerView:
    """A worker, as it last reported itself."""

    pid: int
    host: str
    device: str
    activity: str
    started_at: datetime
    heartbeat_at: datetime
    memory: int | None = None
    """bytes that its device has, if known"""
    name: str = ""
    """of a worker beside others; empty for that of a home"""
    age: float = 0.0
    """seconds since its heartbeat, when it was read. One in the future dates from before the clock was set back."""

    @property
    def alive(self) -> bool:
        """Whether its heartbeat is recent."""
        return self.age < ALIVE_SECONDS
