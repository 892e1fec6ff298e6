"""Workers, as they report themselves: one of each home without a name, and any number with names."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select

from fsd_core.storage.database.rows import worker_view
from fsd_core.storage.database.store import Store, insert, moment_of
from fsd_core.storage.database.tables import WorkerRow, now
from fsd_core.storage.records import WorkerView


class WorkerStore(Store):
    def report_worker(
        self, pid: int, host: str, device: str, activity: str, memory: int | None = None, name: str = ""
    ) -> None:
        """Record a worker's heartbeat and its activity. ``memory``: bytes that its device has, if known. ``name``: of a
        worker beside others; empty for that of a home."""
        values: dict[str, Any] = {
            "pid": pid, "host": host[:255], "device": device[:255], "activity": activity[:255],
            "memory": memory,
        }  # fmt: skip
        with self._database.session() as session:
            values["heartbeat_at"] = moment_of(session)
            row = session.get(WorkerRow, name)
            if row is None:
                first = insert(session, WorkerRow).values(name=name, started_at=now(), **values)
                session.execute(first.on_conflict_do_nothing())
                return
            if (row.pid, row.host) != (pid, host):
                row.started_at = now()
            for key, value in values.items():
                setattr(row, key, value)

    def workers(self) -> list[WorkerView]:
        """Return all workers as they last reported themselves, dead ones too, by name."""
        with self._database.session(readonly=True) as session:
            at, rows = moment_of(session), session.scalars(select(WorkerRow).order_by(WorkerRow.name))
            return [worker_view(row, at) for row in rows]

    def prune_workers(self, older_than: timedelta) -> None:
        """Forget workers with names that were last heard of longer ago than this."""
        with self._database.session() as session:
            session.execute(delete(WorkerRow).where(WorkerRow.name != "", WorkerRow.heartbeat_at < now() - older_than))

    def worker(self) -> WorkerView | None:
        """Return the worker that pages tell of: one that is alive before one that is not, a home's before others.
        ``None`` if none ever reported itself."""
        return max(self.workers(), key=lambda one: (one.alive, not one.name, one.heartbeat_at), default=None)
