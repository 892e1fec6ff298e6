"""Execution of claimed jobs, one at a time, each by its kind."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fsd_core.calibration.running import calibrate
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import Cancelled, DatabaseUnavailable, DeviceUnavailable, FsdError, user_message
from fsd_core.evaluation import bounds
from fsd_core.evaluation.runner import Interrupted, RunObserver, execute_runs, give_up
from fsd_core.metrics import WORKER
from fsd_core.models.hub import fetch_pair
from fsd_core.models.model_pairs import get_pair
from fsd_core.settings import Settings
from fsd_core.storage.messages import (
    BoundsJob,
    ExperimentJob,
    ExperimentRunJob,
    FetchJob,
    PairFetchJob,
    PlaygroundJob,
    RunJob,
)
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import JobRow
from fsd_core.system import LockMetadata, Stop
from fsd_core.tasks import download
from fsd_core.worker import playground
from fsd_core.worker.device import DeviceFactory
from fsd_core.worker.sharing import HOME_WORKER, Heartbeat, can_be_shared

PROGRESS = 0.5  # seconds between two reports of a fetch


class Stopping(Interrupted):
    """The worker was asked to end. The current job is returned to the queue."""


class ClaimLost(Interrupted):
    """Another worker has claimed the job, which must not be touched any more."""


@dataclass(frozen=True)
class Pauses:
    """Actions of the worker between two pieces of a fetch."""

    check: Callable[[], None]
    """raises whatever should end the job now"""
    serve_waiting: Callable[[], None]
    """runs the jobs that somebody waits for"""
    show: Callable[[str], None]
    """shows on the pages what the worker does"""


class _Paced:
    """Says when a fetch is to be reported again."""

    def __init__(self) -> None:
        self._last = -PROGRESS

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._last + PROGRESS:
            return False
        self._last = now
        return True


def progress_text(what: str, done: int, total: int) -> str:
    """Return the text on a fetch in progress, with ``done`` of ``total`` bytes where the total is known."""
    return f"Fetching {what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB" if total else what


def fetch_task(name: str, folder: Path, pauses: Pauses) -> None:
    """Fetch the files of a task into ``folder``."""
    paced, activity = _Paced(), ""

    def before_a_file(what: str, done: int, total: int) -> None:
        nonlocal activity
        pauses.check()
        activity = f"Fetching {what}: file {done + 1} of {total}"
        pauses.show(activity)

    def in_a_file(done: int, size: int) -> None:
        if paced.is_due():
            pauses.serve_waiting()
            pauses.check()
            pauses.show(f"{activity}, {done / 1e6:,.0f} of {size / 1e6:,.0f} MB")

    download.fetch(name, folder, before_a_file, in_a_file)


def fetch_models(pair: str, pauses: Pauses, report: Callable[[int, int], None]) -> None:
    """Fetch the models of a pair. ``report`` stores how many bytes of how many have arrived."""
    ended: list[Exception] = []
    paced = _Paced()

    def on_progress(what: str, done: int, total: int) -> None:
        if not paced.is_due() and done < total:
            return
        pauses.show(progress_text(what, done, total))
        try:
            pauses.serve_waiting()
            if total:
                report(done, total)
            pauses.check()
        except (Stopping, ClaimLost) as error:
            ended.append(error)
            raise Cancelled("The worker ends.") from None

    try:
        fetch_pair(get_pair(pair), on_progress)
    except Cancelled:
        if ended:
            raise ended[0] from None
        raise


logger = logging.getLogger(__name__)
_T = TypeVar("_T")

FIRST_RETRY, LAST_RETRY = 0.5, 10.0  # seconds to wait for a database that does not answer
WAITED_FOR = (PlaygroundJob.kind, FetchJob.kind)
"""interactive jobs, which run before an experiment's next prompt"""
STALLS_ALLOWED = 3
"""number of workers in a row that may be lost on a job without progress"""


class ExperimentShared(Exception):
    """The runs of the job are jobs of their own now, and any worker takes them."""


class JobExecutor:
    """Executes claimed jobs of one worker and stores how they ended."""

    def __init__(
        self, settings: Settings, device: DeviceFactory, stop: Stop, lease: float, name: str, recorded_as: str,
        only: str | None, *, scheduled: bool,
    ) -> None:  # fmt: skip
        """``stop`` is set once the worker is to end. ``scheduled``: the jobs of single runs are executed elsewhere. The
        others: as in :class:`Worker`."""
        self._settings, self._stop, self._lease = settings, stop, lease
        self._name, self._recorded_as, self._only, self._scheduled = name, recorded_as, only, scheduled
        self._claimed: dict[str, str] = {}  # job id: claim token
        self.device = device(settings, self._on_progress)
        self._kinds = {
            ExperimentJob.kind: self._do_runs, RunJob.kind: self._do_runs, ExperimentRunJob.kind: self._do_runs,
            PlaygroundJob.kind: self._playground, BoundsJob.kind: self._bounds,
            FetchJob.kind: self._fetch, PairFetchJob.kind: self._fetch_pair,
        }  # fmt: skip
        if scheduled:
            del self._kinds[ExperimentRunJob.kind]

    def begin(self, repository: Repository, heartbeat: Heartbeat, lock_metadata: LockMetadata) -> None:
        """Give the executor what exists once the worker has its lock and its database."""
        self._repository, self._heartbeat, self._lock_metadata = repository, heartbeat, lock_metadata

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of jobs that are executed here."""
        return tuple(self._kinds)

    def hand_back(self) -> None:
        """Return the claimed jobs to the queue before their current prompts end. Call it when the process ends."""
        for job_id, token in list(self._claimed.items()):
            with suppress(DatabaseUnavailable):
                self._repository.finish_job(job_id, token, "queued")

    def with_retries(self, action: Callable[[], _T]) -> _T:
        """Return the action's result, retried until the database answers."""
        wait = FIRST_RETRY
        while True:
            try:
                return action()
            except DatabaseUnavailable as error:
                logger.warning("%s Trying again in %.1f s.", error, wait)
                if self._stop.wait(wait):
                    raise Stopping from error
                wait = min(2 * wait, LAST_RETRY)

    def execute(self, job: JobRow) -> None:
        """Execute a job and store its final status."""
        assert job.claim_token is not None
        token, status, sentence = job.claim_token, "finished", None
        with self._heartbeat.holding(job), self._lock_metadata.working_on(job.id, token), self._claiming(job.id, token):
            try:
                if job.stalled >= STALLS_ALLOWED:
                    self._give_up(job)
                self._kinds[job.kind](job)
            except Stopping:
                status = "queued"
            except ClaimLost:
                logger.warning("The job %s went to another worker.", job.id)
                return
            except ExperimentShared:
                logger.info("The runs of the experiment %s are shared among workers.", job.id)
                return
            except Cancelled:
                status = "cancelled"
            except Exception as error:
                status, sentence = "failed", user_message(error)
            self.with_retries(lambda: self._repository.finish_job(job.id, token, status, sentence))
        logger.info("Job %s (%s): %s.", job.id, job.kind, status)

    @contextmanager
    def _claiming(self, job_id: str, token: str) -> Iterator[None]:
        """Keep the claim during the block, for :meth:`hand_back`."""
        self._claimed[job_id] = token
        try:
            yield
        finally:
            del self._claimed[job_id]

    def _give_up(self, job: JobRow) -> None:
        """Fail a job that repeatedly lost its worker. Raises the error; its runs keep their figures."""
        error = (
            f"The worker was lost {job.stalled} times in a row on this job without progress, so it is not retried. "
            f"Finished prompts are kept. Look for the cause in {self._settings.home / 'logs'}, then resume it."
        )
        runs = self._runs_of(job)
        self.with_retries(lambda: give_up(self._repository, runs, error))
        raise FsdError(error)

    def _runs_of(self, job: JobRow) -> list[str]:
        """Return the runs of a job; none for the playground and other jobs without runs."""
        match job.kind:
            case ExperimentJob.kind:
                id = ExperimentJob.read(job.payload).experiment_id
                experiment = self.with_retries(lambda: self._repository.experiment(id))
                return [run.id for run in experiment.runs]
            case RunJob.kind:
                return [RunJob.read(job.payload).run_id]
            case ExperimentRunJob.kind:
                return [ExperimentRunJob.read(job.payload).run_id]
        return []

    def _share(self, job: JobRow) -> None:
        """Raise ``ExperimentShared`` where the runs of an experiment can be left to several workers, and are now."""
        if job.kind != ExperimentJob.kind:
            return
        experiment = self._repository.experiment(ExperimentJob.read(job.payload).experiment_id)
        if all(run.ended for run in experiment.runs):  # by other workers: nothing below asks for each of them
            self._check(job)
        if not can_be_shared(experiment):
            return
        others = self._name or self._scheduled or any(w.name and w.alive for w in self._repository.workers())
        if not others:
            return
        if self._repository.share_experiment(job.id, job.claim_token or ""):
            raise ExperimentShared

    def _provenance(self, job: JobRow) -> dict[str, Any]:
        """Return the price of this machine, if known, and what tells runs of several workers apart."""
        price = self._settings.price_per_hour
        found: dict[str, Any] = {} if price is None else {"price_per_hour": price}
        if self._name or job.kind == ExperimentRunJob.kind:
            found[WORKER] = self._recorded_as or HOME_WORKER
        return found

    def _among(self, job: JobRow) -> list[str]:
        """Return the runs of the experiment whose run a job is; none for other jobs."""
        if job.kind != ExperimentRunJob.kind:
            return []
        return [run.id for run in self._repository.experiment(ExperimentRunJob.read(job.payload).experiment_id).runs]

    def _check(self, job: JobRow) -> None:
        """Raise whatever should end the job now."""
        if self._heartbeat.lost(job):
            raise ClaimLost
        if self._stop.is_set():
            raise Stopping
        if self.with_retries(lambda: self._repository.cancel_requested(job.id)):
            raise Cancelled("Cancelled by a user.")
        self.device.fit()

    def _do_runs(self, job: JobRow) -> None:
        def before_a_prompt(run: RunView) -> None:
            self.serve_waiting()
            self._check(job)
            self._heartbeat.activity = f"{run.label}: prompt {run.prompts_done + 1} of {run.prompts_total}"

        observer = RunObserver(
            before_a_prompt,
            self._lock_metadata.writing,
            on_start=lambda _: self._check(job),
            provenance=self._provenance(job),
            on_wait=lambda: self._check(job),
        )

        def execute() -> None:
            self._share(job)
            config = self._calibration(job)
            with self.device.generator(job.id) as generator:
                if config is None:
                    execute_runs(self._repository, self._runs_of(job), generator, observer, self._among(job))
                else:
                    calibrate(self._repository, job.id, config, generator, observer)

        try:
            self.with_retries(execute)
        except DeviceUnavailable as error:
            message = str(error)
            self.with_retries(lambda: give_up(self._repository, self._runs_of(job), message))
            raise

    def _calibration(self, job: JobRow) -> CalibrationConfig | None:
        """Return the config of the job's calibration, or ``None`` for any other job."""
        if job.kind != ExperimentJob.kind:
            return None
        config = self._repository.experiment(ExperimentJob.read(job.payload).experiment_id).config
        return config if isinstance(config, CalibrationConfig) else None

    def _on_progress(self, what: str, done: int, total: int) -> None:
        self._show(progress_text(what, done, total))

    def _show(self, activity: str) -> None:
        self._heartbeat.activity = activity

    def serve_waiting(self) -> None:
        """Run interactive jobs before an experiment's next prompt, then restore the threads of its pair."""
        if self._only is not None:
            return
        with self.device.aside():
            while not self._stop.is_set() and (job := self._repository.claim(WAITED_FOR, self._lease)):
                self.execute(job)

    def has_urgent_work(self) -> bool:
        """Whether postponable work should pause."""
        return self._stop.is_set() or self._repository.queue_length(WAITED_FOR) > 0

    def _playground(self, job: JobRow) -> None:
        message = PlaygroundJob.read(job.payload)
        self._check(job)
        written = [chunk for _, chunk in self.with_retries(lambda: self._repository.chunks(job.id))]
        chunks = self.device.playground(job.id, message, written)
        self._heartbeat.activity = "Playground"
        with closing(chunks):
            playground.follow(
                chunks,
                write=lambda batch: self.with_retries(lambda: self._repository.append_chunks(job.id, batch)),
                check=lambda: self._check(job),
            )

    def _fetch(self, job: JobRow) -> None:
        self._check(job)
        fetch_task(FetchJob.read(job.payload).task, self._settings.data_folder, self._pauses(job))

    def _fetch_pair(self, job: JobRow) -> None:
        def report(done: int, total: int) -> None:
            token = job.claim_token or ""
            self.with_retries(lambda: self._repository.report_bytes(job.id, token, done, total))

        self._check(job)
        fetch_models(PairFetchJob.read(job.payload).pair, self._pauses(job), report)

    def _pauses(self, job: JobRow) -> Pauses:
        return Pauses(lambda: self._check(job), self.serve_waiting, self._show)

    def _bounds(self, job: JobRow) -> None:
        message = BoundsJob.read(job.payload)
        run = self.with_retries(lambda: self._repository.run(message.run_id))

        def before_the_next(done: int, total: int) -> None:
            self.serve_waiting()
            self._check(job)
            self._heartbeat.activity = f"Bounds of {run.label}: position {done} of {total}"

        self._check(job)
        ask = self.device.bounds(job.id, run)
        bounds.measure(self._repository, run.id, ask, message.temperature, on_position=before_the_next)
