"""An experiment shared among workers: each of its runs is a job of its own, which any worker claims under its lease.

Meanwhile the experiment's job is running without a claim. When the last of its runs' jobs has ended, it waits for a
worker again, which compares the runs and ends it.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from fsd_core.storage.database.store import Store
from fsd_core.storage.database.tables import JobRow, RunRow
from fsd_core.storage.messages import ExperimentRunJob
from fsd_core.storage.records import UNENDED


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
