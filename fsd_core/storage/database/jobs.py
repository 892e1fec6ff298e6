"""The queue: claims with a lease and a token, cancelling, streams of the playground, the worker's heartbeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, and_, delete, func, or_, select, update
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from fsd_core.storage.database.rows import job_view, storable, worker_view
from fsd_core.storage.database.runs import UNENDED, count_losses
from fsd_core.storage.database.store import Store, changed, get_row, new_id
from fsd_core.storage.database.tables import JobRow, RunRow, StreamChunkRow, WorkerStateRow, now
from fsd_core.storage.messages import Chunk, JobMessage, PlaygroundJob
from fsd_core.storage.records import JobView, WorkerView


class JobStore(Store):
    def enqueue(self, message: JobMessage, priority: int = 0, id: str | None = None) -> str:
        """A queued job; jobs of higher priority go first, then older ones. Returns its id: a new one, or ``id``, which
        no job may have yet."""
        id = id or new_id()
        with self._database.session() as session:
            session.add(JobRow(id=id, kind=message.kind, payload=storable(message.as_json()), priority=priority))
        return id

    def job(self, id: str) -> JobView:
        """Raises ``UnknownName``."""
        with self._database.session(readonly=True) as session:
            return job_view(get_row(session, JobRow, id, "job"))

    def find_job(self, id: str) -> JobView | None:
        """The job of an experiment, of a run alone, or any other by its id; ``None`` where there is none."""
        with self._database.session(readonly=True) as session:
            row = session.get(JobRow, id)
            return job_view(row) if row else None

    def latest_jobs(self, kind: str, limit: int = 50) -> list[JobView]:
        """The jobs of a kind, newest first."""
        newest = select(JobRow).where(JobRow.kind == kind).order_by(JobRow.created_at.desc(), JobRow.id).limit(limit)
        with self._database.session(readonly=True) as session:
            return [job_view(job) for job in session.scalars(newest)]

    def claim(self, kinds: tuple[str, ...], lease_seconds: float) -> JobView | None:
        """Takes the next job that is queued, or whose worker's lease ran out; ``None`` if there is none.

        Of several processes that claim at once each gets another job.
        """
        waiting = _waiting(kinds)
        with self._database.session(readonly=True) as session:
            if session.scalar(waiting) is None:
                return None  # an idle worker keeps nobody from writing
        with self._database.session() as session:
            id = session.scalar(waiting.with_for_update(skip_locked=True))
            if id is None:
                return None
            job = get_row(session, JobRow, id, "job")
            if job.status == "running":
                _lose(session, job, blamed=False)
            job.attempts += 1
            job.status, job.claim_token = "running", new_id()
            job.started_at = job.started_at or now()
            job.lease_expires_at = now() + timedelta(seconds=lease_seconds)
            return job_view(job)

    def worker_lost(self, claims: Mapping[str, str], prompts: Mapping[str, Sequence[int]]) -> None:
        """Gives back what a worker held that is known to be dead, whatever its leases say.

        ``claims``: tokens by job; ``prompts``: positions that were being written, by run. The loss is counted against
        these prompts, or against the jobs where no prompt was being written.
        """
        with self._database.session() as session:
            count_losses(session, prompts)
            for job_id, token in claims.items():
                mine = JobRow.id == job_id, JobRow.claim_token == token, JobRow.status == "running"
                job = session.scalar(select(JobRow).where(*mine).with_for_update())
                if job is not None:
                    _lose(session, job, blamed=bool(prompts))
                    job.status, job.lease_expires_at = "queued", None

    def heartbeat(self, job_id: str, token: str, lease_seconds: float) -> bool:
        """Prolongs the lease. ``False`` if the claim is lost: another worker took the job, or it has ended."""
        return self._held(job_id, token, {"lease_expires_at": now() + timedelta(seconds=lease_seconds)})

    def finish_job(self, job_id: str, token: str, status: str, error: str | None = None) -> bool:
        """Ends a job as finished, failed or cancelled; ``False``, and nothing changed, if the claim is lost.

        As queued, it is given back for a worker to go on with. Runs that an experiment which failed or was cancelled
        leaves open are ended with it.
        """
        ended = None if status == "queued" else now()
        values = {"status": status, "error": storable(error), "finished_at": ended, "lease_expires_at": None}
        return self._held(job_id, token, values)

    def request_cancel(self, job_id: str) -> None:
        """Asks for a job to be stopped. One that waits is cancelled at once, with its runs; one that ended stays so.

        A job that waits with something done is left to the worker, which writes the figures of what is done.
        """
        with self._database.session() as session:
            job = session.scalar(select(JobRow).where(JobRow.id == job_id).with_for_update())
            if job is None:
                get_row(session, JobRow, job_id, "job")
            elif job.status == "queued" and not _runs_progress(session, job):
                job.status, job.cancel_requested, job.finished_at = "cancelled", True, now()
                session.execute(_close_runs(job_id, "cancelled", None))
            elif job.status in ("queued", "running"):
                job.cancel_requested = True

    def cancel_requested(self, job_id: str) -> bool:
        with self._database.session(readonly=True) as session:
            return bool(session.scalar(select(JobRow.cancel_requested).where(JobRow.id == job_id)))

    def queue_length(self, kinds: tuple[str, ...] | None = None) -> int:
        """Jobs that wait for the worker; of some ``kinds``, or all."""
        waiting = select(func.count(JobRow.id)).where(JobRow.status == "queued")
        if kinds is not None:
            waiting = waiting.where(JobRow.kind.in_(kinds))
        with self._database.session(readonly=True) as session:
            return session.scalar(waiting) or 0

    def append_chunks(self, job_id: str, chunks: Sequence[Chunk]) -> None:
        """Adds to what a job has written, in order."""
        if not chunks:
            return
        with self._database.session() as session:
            session.scalar(select(JobRow.id).where(JobRow.id == job_id).with_for_update())
            last = session.scalar(select(func.max(StreamChunkRow.sequence)).where(StreamChunkRow.job_id == job_id))
            first = 0 if last is None else last + 1
            session.add_all(
                StreamChunkRow(job_id=job_id, sequence=sequence, payload=storable(chunk.as_json()))
                for sequence, chunk in enumerate(chunks, first)
            )

    def chunks(self, job_id: str, after_sequence: int = -1) -> list[tuple[int, Chunk]]:
        """What a job has written after the last chunk seen; -1 for all. Raises ``DataDamaged``."""
        statement = select(StreamChunkRow.sequence, StreamChunkRow.payload).where(
            StreamChunkRow.job_id == job_id, StreamChunkRow.sequence > after_sequence
        )
        with self._database.session(readonly=True) as session:
            rows = session.execute(statement.order_by(StreamChunkRow.sequence))
            return [(sequence, Chunk.read(payload)) for sequence, payload in rows]

    def prune_playground(self, older_than: timedelta) -> int:
        """Deletes jobs of the playground that ended longer ago than this, with what they wrote; how many jobs."""
        with self._database.session() as session:
            ended = JobRow.kind == PlaygroundJob.kind, JobRow.finished_at < now() - older_than
            return changed(session, delete(JobRow).where(*ended))

    def report_worker(self, pid: int, host: str, device: str, activity: str) -> None:
        """The worker's heartbeat, and what it is busy with."""
        with self._database.session() as session:
            row = session.get(WorkerStateRow, 1)
            if row is None:
                row = WorkerStateRow(id=1)
                session.add(row)
            if (row.pid, row.host) != (pid, host):
                row.started_at = now()
            row.pid, row.host, row.device, row.activity = pid, host[:255], device[:255], storable(activity)[:255]
            row.heartbeat_at = now()

    def worker(self) -> WorkerView | None:
        """The worker as it last reported itself; ``None`` if none ever did."""
        with self._database.session(readonly=True) as session:
            row = session.get(WorkerStateRow, 1)
            return worker_view(row) if row else None

    def _held(self, job_id: str, token: str, values: dict[str, Any]) -> bool:
        holding = JobRow.id == job_id, JobRow.claim_token == token, JobRow.status == "running"
        with self._database.session() as session:
            held = changed(session, update(JobRow).where(*holding).values(values)) == 1
            if held and values.get("status") in ("failed", "cancelled"):
                session.execute(_close_runs(job_id, values["status"], values["error"]))
            return held


def _runs_progress(session: Session, job: JobRow) -> int:
    """Prompts done and runs ended of an experiment, or of a run alone."""
    runs = select(func.coalesce(func.sum(RunRow.prompts_done), 0), func.count().filter(RunRow.status.not_in(UNENDED)))
    return sum(session.execute(runs.where(_of_job(job.id))).one())


def _progress(session: Session, job: JobRow) -> int:
    """What a job has to show: that of its runs, or the chunks of its stream."""
    chunks = session.scalar(select(func.count(StreamChunkRow.id)).where(StreamChunkRow.job_id == job.id)) or 0
    return _runs_progress(session, job) + chunks


def _lose(session: Session, job: JobRow, *, blamed: bool) -> None:
    """Counts a lost worker; ``blamed``: a prompt answers for it."""
    job.lost_workers += 1
    progress = _progress(session, job)
    if progress > job.progress:
        job.progress, job.stalled = progress, 0
    elif not blamed:
        job.stalled += 1


def _waiting(kinds: tuple[str, ...]) -> Select[str]:
    lost = and_(JobRow.status == "running", JobRow.lease_expires_at < now())
    statement = select(JobRow.id).where(JobRow.kind.in_(kinds), or_(JobRow.status == "queued", lost))
    return statement.order_by(JobRow.priority.desc(), JobRow.created_at, JobRow.id).limit(1)


def _close_runs(job_id: str, status: str, error: str | None):
    """Of the job of an experiment or of a run alone, which has its id; other jobs have no runs."""
    values = {"status": status, "error": error, "finished_at": now()}
    return update(RunRow).where(_of_job(job_id), RunRow.status.in_(UNENDED)).values(values)


def _of_job(job_id: str) -> ColumnElement[bool]:
    return or_(RunRow.experiment_id == job_id, and_(RunRow.id == job_id, RunRow.experiment_id.is_(None)))
