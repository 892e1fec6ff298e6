"""The job queue, and the workers that claim from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, and_, delete, func, or_, select, update
from sqlalchemy.orm import Session

from fsd_core.storage.messages import Chunk, JobMessage, PlaygroundJob
from fsd_core.storage.opening import Store, changed, dialect_insert, get_row, moment_of, new_id, unknown
from fsd_core.storage.records import UNENDED
from fsd_core.storage.runs import (
    close_sharing,
    count_losses,
    is_shared,
    lock_sharing_job,
    of_owner,
    shared_jobs,
)
from fsd_core.storage.tables import JobRow, RunRow, StreamChunkRow, WorkerRow, now


class JobStore(Store):
    def enqueue(self, message: JobMessage, priority: int = 0, id: str | None = None) -> str:
        """Queue a job. Returns its id: a new one, or ``id``, which no job may have yet.

        Jobs of higher priority go first, then older ones.
        """
        id = id or new_id()
        with self._database.session() as session:
            session.add(JobRow(id=id, kind=message.kind, payload=message.as_json(), priority=priority))
        return id

    def job(self, id: str) -> JobRow:
        """Return a job. Raises ``UnknownName``."""
        with self._database.session(readonly=True) as session:
            return get_row(session, JobRow, id, "job")

    def find_job(self, id: str) -> JobRow | None:
        """Return the job of an experiment, of a single run, or any other by its id; ``None`` if there is none."""
        with self._database.session(readonly=True) as session:
            return session.get(JobRow, id)

    def latest_jobs(self, kind: str, limit: int = 50) -> list[JobRow]:
        """Return the jobs of a kind, newest first."""
        newest = select(JobRow).where(JobRow.kind == kind).order_by(JobRow.created_at.desc(), JobRow.id).limit(limit)
        with self._database.session(readonly=True) as session:
            return list(session.scalars(newest))

    def claim(self, kinds: tuple[str, ...], lease_seconds: float, only: str | None = None) -> JobRow | None:
        """Claim the next job that is queued, or whose worker's lease expired; ``None`` if there is none.

        Several processes that claim at once each get a different job. ``only``: the id of the one that may be claimed.
        """
        with self._database.session(readonly=True) as session:
            waiting = _waiting(kinds, moment_of(session))
            if only is not None:
                waiting = waiting.where(JobRow.id == only)
            if session.scalar(waiting) is None:
                return None  # an idle worker takes no write lock
        with self._database.session() as session:
            id = session.scalar(waiting.with_for_update(skip_locked=True))
            if id is None:
                return None
            job = get_row(session, JobRow, id, "job")
            if job.status == "running":
                _count_loss(session, job, blamed=False)
            job.attempts += 1
            job.status, job.claim_token = "running", new_id()
            job.started_at = job.started_at or now()
            job.lease_expires_at = moment_of(session) + timedelta(seconds=lease_seconds)
            return job

    def worker_lost(self, claims: Mapping[str, str], prompts: Mapping[str, Sequence[int]]) -> None:
        """Release the jobs of a worker that is known to be dead, whatever its leases say.

        ``claims``: tokens by job. ``prompts``: positions that were being generated, by run. The loss is counted against
        these prompts, or against the jobs if there were none.
        """
        with self._database.session() as session:
            count_losses(session, prompts)
            for job_id, token in claims.items():
                claimed = JobRow.id == job_id, JobRow.claim_token == token, JobRow.status == "running"
                job = session.scalar(select(JobRow).where(*claimed).with_for_update())
                if job is not None:
                    _count_loss(session, job, blamed=bool(prompts))
                    job.status, job.lease_expires_at = "queued", None
                    session.execute(_requeue_runs(job_id))

    def heartbeat(self, job_id: str, token: str, lease_seconds: float) -> bool:
        """Extend the lease. Returns ``False`` if the claim is lost: another worker took the job, or it has ended."""
        with self._database.session(readonly=True) as session:
            until = moment_of(session) + timedelta(seconds=lease_seconds)
        return self._update_claimed(job_id, token, {"lease_expires_at": until})

    def report_bytes(self, job_id: str, token: str, done: int, total: int) -> bool:
        """Record how far a fetch of models is. Returns ``False`` if the claim is lost."""
        return self._update_claimed(job_id, token, {"bytes_done": done, "bytes_total": total})

    def finish_job(self, job_id: str, token: str, status: str, error: str | None = None) -> bool:
        """End a job as finished, failed or cancelled. Returns ``False``, with nothing changed, if the claim is lost.

        With the status ``queued`` it is released for a worker to continue, and its runs wait with it. Open runs of an
        experiment that failed or was cancelled end with it. When the last of the runs that workers share has ended,
        their experiment waits for a worker.
        """
        ended = None if status == "queued" else now()
        values = {"status": status, "error": error, "finished_at": ended, "lease_expires_at": None}
        return self._update_claimed(job_id, token, values)

    def request_cancel(self, job_id: str) -> None:
        """Request that a job stops. A queued one is cancelled at once, with its runs. An ended one stays unchanged.

        A queued job with progress is left to the worker, which records the metrics of the finished prompts. Of an
        experiment that workers share, all of them are asked.
        """
        with self._database.session() as session:
            job = session.scalar(select(JobRow).where(JobRow.id == job_id).with_for_update())
            if job is None:
                raise unknown("job", job_id)
            if is_shared(job):
                for run_job in shared_jobs(session, job_id):
                    _cancel(session, run_job)
                session.flush()
                close_sharing(session, job)
            _cancel(session, job)

    def cancel_requested(self, job_id: str) -> bool:
        with self._database.session(readonly=True) as session:
            return bool(session.scalar(select(JobRow.cancel_requested).where(JobRow.id == job_id)))

    def queue_length(self, kinds: tuple[str, ...] | None = None) -> int:
        """Return how many jobs wait for the worker, of some ``kinds`` or of all."""
        waiting = select(func.count(JobRow.id)).where(JobRow.status == "queued")
        if kinds is not None:
            waiting = waiting.where(JobRow.kind.in_(kinds))
        with self._database.session(readonly=True) as session:
            return session.scalar(waiting) or 0

    def append_chunks(self, job_id: str, chunks: Sequence[Chunk]) -> None:
        """Append chunks to a job's stream, in order."""
        if not chunks:
            return
        with self._database.session() as session:
            session.scalar(select(JobRow.id).where(JobRow.id == job_id).with_for_update())
            last = session.scalar(select(func.max(StreamChunkRow.sequence)).where(StreamChunkRow.job_id == job_id))
            first = 0 if last is None else last + 1
            session.add_all(
                StreamChunkRow(job_id=job_id, sequence=sequence, payload=chunk.as_json())
                for sequence, chunk in enumerate(chunks, first)
            )

    def chunks(self, job_id: str, after_sequence: int = -1) -> list[tuple[int, Chunk]]:
        """Return the chunks of a job after the last one seen; -1 for all. Raises ``DataDamaged``."""
        statement = select(StreamChunkRow.sequence, StreamChunkRow.payload).where(
            StreamChunkRow.job_id == job_id, StreamChunkRow.sequence > after_sequence
        )
        with self._database.session(readonly=True) as session:
            rows = session.execute(statement.order_by(StreamChunkRow.sequence))
            return [(sequence, Chunk.read(payload)) for sequence, payload in rows]

    def prune_playground(self, older_than: timedelta) -> int:
        """Delete playground jobs that ended longer ago than this, with their streams. Returns how many."""
        with self._database.session() as session:
            ended = JobRow.kind == PlaygroundJob.kind, JobRow.finished_at < now() - older_than
            return changed(session, delete(JobRow).where(*ended))

    def _update_claimed(self, job_id: str, token: str, values: dict[str, Any]) -> bool:
        claimed = JobRow.id == job_id, JobRow.claim_token == token, JobRow.status == "running"
        ends = values.get("status") not in (None, *UNENDED)
        with self._database.session() as session:
            sharing = lock_sharing_job(session, job_id) if ends else None
            updated = changed(session, update(JobRow).where(*claimed).values(values)) == 1
            if updated and values.get("status") in ("failed", "cancelled"):
                session.execute(_close_runs(job_id, values["status"], values["error"]))
            if updated and values.get("status") == "queued":
                session.execute(_requeue_runs(job_id))
            if updated and sharing is not None:
                close_sharing(session, sharing)
            return updated


def _cancel(session: Session, job: JobRow) -> None:
    """Cancel a queued job without progress at once, with its runs, and one whose runs have all ended. Ask the worker of
    any other unended one."""
    unended = select(RunRow.id).where(of_owner(job.id), RunRow.status.in_(UNENDED)).limit(1)
    if job.status == "queued" and (session.scalar(unended) is None or not _runs_progress(session, job)):
        job.status, job.cancel_requested, job.finished_at = "cancelled", True, now()
        session.execute(_close_runs(job.id, "cancelled", None))
    elif job.status in UNENDED:
        job.cancel_requested = True


def _runs_progress(session: Session, job: JobRow) -> int:
    """Return prompts done plus runs ended, of an experiment or of a single run."""
    runs = select(func.coalesce(func.sum(RunRow.prompts_done), 0), func.count().filter(RunRow.status.not_in(UNENDED)))
    return sum(session.execute(runs.where(of_owner(job.id))).one())


def _progress(session: Session, job: JobRow) -> int:
    """Return the progress of a job: that of its runs, the chunks of its stream, and the megabytes that it fetched."""
    chunks = session.scalar(select(func.count(StreamChunkRow.id)).where(StreamChunkRow.job_id == job.id)) or 0
    return _runs_progress(session, job) + chunks + (job.bytes_done or 0) // 1_000_000


def _count_loss(session: Session, job: JobRow, *, blamed: bool) -> None:
    """Count a lost worker. ``blamed``: the loss is counted against a prompt."""
    job.lost_workers += 1
    progress = _progress(session, job)
    if progress > job.progress:
        job.progress, job.stalled = progress, 0
    elif not blamed:
        job.stalled += 1


def _waiting(kinds: tuple[str, ...], at: datetime) -> Select[str]:
    expired = and_(JobRow.status == "running", JobRow.lease_expires_at < at)
    statement = select(JobRow.id).where(JobRow.kind.in_(kinds), or_(JobRow.status == "queued", expired))
    return statement.order_by(JobRow.priority.desc(), JobRow.created_at, JobRow.id).limit(1)


def _requeue_runs(job_id: str):
    """Return the update by which the runs of a job that nobody has any more wait for the next worker."""
    return update(RunRow).where(of_owner(job_id), RunRow.status == "running").values(status="queued")


def _close_runs(job_id: str, status: str, error: str | None):
    """Return the update that ends the open runs of a job. Its id is that of its experiment or single run; other jobs
    have none."""
    values = {"status": status, "error": error, "finished_at": now()}
    return update(RunRow).where(of_owner(job_id), RunRow.status.in_(UNENDED)).values(values)


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
                first = dialect_insert(session, WorkerRow).values(name=name, started_at=now(), **values)
                session.execute(first.on_conflict_do_nothing())
                return
            if (row.pid, row.host) != (pid, host):
                row.started_at = now()
            for key, value in values.items():
                setattr(row, key, value)

    def workers(self) -> list[WorkerRow]:
        """Return all workers as they last reported themselves, dead ones too, by name."""
        with self._database.session(readonly=True) as session:
            at, rows = moment_of(session), list(session.scalars(select(WorkerRow).order_by(WorkerRow.name)))
            for row in rows:
                row.age = abs((at - row.heartbeat_at).total_seconds())
            return rows

    def prune_workers(self, older_than: timedelta) -> None:
        """Forget workers with names that were last heard of longer ago than this."""
        with self._database.session() as session:
            session.execute(delete(WorkerRow).where(WorkerRow.name != "", WorkerRow.heartbeat_at < now() - older_than))

    def worker(self) -> WorkerRow | None:
        """Return the worker that pages tell of: one that is alive before one that is not, a home's before others.
        ``None`` if none ever reported itself."""
        return max(self.workers(), key=lambda one: (one.alive, not one.name, one.heartbeat_at), default=None)
