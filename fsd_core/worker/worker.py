"""The worker, which executes queued jobs in its own process or, if necessary, in the web process.

A home has one without a name. On PostgreSQL any number of workers with names work beside it (``sharing``).

All its work consists of rows in the ``jobs`` table, claimed under a lease that a thread renews. A killed worker leaves
its job to the next one, which continues at the first unrecorded prompt.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import Any, TypeVar

from fsd_core.calibration.running import calibrate
from fsd_core.conditions import WORKER
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import (
    Cancelled,
    DatabaseUnavailable,
    DataDamaged,
    DeviceUnavailable,
    FsdError,
    WorkerRunning,
    user_message,
)
from fsd_core.evaluation import bounds
from fsd_core.evaluation.observer import RunObserver
from fsd_core.evaluation.runner import execute_runs, give_up
from fsd_core.models.hub import fetch_pair
from fsd_core.models.model_pairs import get_pair
from fsd_core.settings import Settings
from fsd_core.signals import handle_hangup
from fsd_core.storage.database.connection import BUSY_TIMEOUT, open_database
from fsd_core.storage.database.repository import Repository
from fsd_core.storage.messages import (
    BoundsJob,
    ExperimentJob,
    ExperimentRunJob,
    FetchJob,
    PairFetchJob,
    PlaygroundJob,
    RunJob,
)
from fsd_core.storage.records import UNENDED, JobView, RunView
from fsd_core.tasks import download
from fsd_core.worker import lock, playground
from fsd_core.worker.device import DeviceFactory, LocalDevice
from fsd_core.worker.heartbeat import IDLE, Heartbeat
from fsd_core.worker.lock_metadata import LockMetadata
from fsd_core.worker.mirroring import Mirroring
from fsd_core.worker.service import SUPERVISED
from fsd_core.worker.sharing import HOME_WORKER, can_be_shared, check_unique, check_worker_name
from fsd_core.worker.worker_log import log_to

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

SchedulerFactory = Callable[[Repository], AbstractContextManager[None]]
"""runs a scheduler of the waiting jobs of single runs during a block"""
LEASE = 10.0  # seconds
POLL = 0.2  # seconds between two polls of an empty queue
FIRST_RETRY, LAST_RETRY = 0.5, 10.0  # seconds to wait for a database that does not answer
WAITED_FOR = (PlaygroundJob.kind, FetchJob.kind)
"""interactive jobs, which run before an experiment's next prompt"""
PROGRESS = 0.5  # seconds between two reports of a fetch
STALLS_ALLOWED = 3
"""number of workers in a row that may be lost on a job without progress"""


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


class Stopping(Exception):
    """The worker was asked to end. The current job is returned to the queue."""


class ClaimLost(Exception):
    """Another worker has claimed the job, which must not be touched any more."""


class ExperimentShared(Exception):
    """The runs of the job are jobs of their own now, and any worker takes them."""


class Worker:
    """Executes jobs until it is asked to stop. The current prompt is then finished and the job returned."""

    def __init__(
        self,
        settings: Settings,
        device: DeviceFactory = LocalDevice,
        *,
        lease: float = LEASE,
        busy_timeout: float = BUSY_TIMEOUT,
        name: str = "",
        recorded_as: str = "",
        only: str | None = None,
        scheduler: SchedulerFactory | None = None,
    ) -> None:
        """``lease``: seconds until a claim without a heartbeat expires. ``busy_timeout``: as in
        :func:`open_database`. ``name``: of a worker beside others, with which its runs are recorded unless
        ``recorded_as`` is another. ``only``: the id of a job, with whose end the worker ends. ``scheduler``: what has
        the jobs of single runs of experiments executed elsewhere.

        Raises ``InvalidSetting`` for a name that no worker can have, or where there can be only one.
        """
        if name:
            check_worker_name(name, settings.resolved_database_url)
        self._name, self._only, self._recorded_as = name, only, recorded_as or name
        self._scheduler = scheduler
        self._settings, self._lease, self._busy_timeout = settings, lease, busy_timeout
        self._stop = threading.Event()
        self._claimed: dict[str, str] = {}  # job id: claim token
        self._device = device(settings, self._on_progress)
        self._prune_at = 0.0
        self._preloaded = False
        self._kinds = {
            ExperimentJob.kind: self._do_runs, RunJob.kind: self._do_runs, ExperimentRunJob.kind: self._do_runs,
            PlaygroundJob.kind: self._playground, BoundsJob.kind: self._bounds,
            FetchJob.kind: self._fetch, PairFetchJob.kind: self._fetch_pair,
        }  # fmt: skip
        if scheduler is not None:
            del self._kinds[ExperimentRunJob.kind]

    def run(self) -> None:
        """Run as a process until SIGTERM, SIGINT or SIGHUP.

        Raises ``WorkerRunning`` if the home has a worker, ``DatabaseOutdated`` or ``InvalidSetting`` if it cannot work.
        """
        with self._exclusive():
            log_to(self._settings.home / "logs" / f"{self._file_name}.log")
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
            handle_hangup(self._on_signal)
            self._serve()

    def run_as_thread(self) -> None:
        """Run as a thread of another process until :meth:`stop`. Raises as :meth:`run` does."""
        with self._exclusive():
            self._serve()

    def stop(self) -> None:
        """Ask the worker to end."""
        self._stop.set()

    def hand_back(self) -> None:
        """Return the claimed jobs to the queue before their current prompts end. Call it when the process ends."""
        for job_id, token in list(self._claimed.items()):
            with suppress(DatabaseUnavailable):
                self._repository.finish_job(job_id, token, "queued")

    @property
    def _file_name(self) -> str:
        """Name of the worker's lock and log, without an ending."""
        return f"worker-{self._name}" if self._name else "worker"

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the home's worker lock, or that of the worker's name."""
        home = self._settings.home
        self._settings.make_folders()
        path = home / f"{self._file_name}.lock"
        worker_lock = lock.acquire(path)
        if worker_lock is None:
            pid = (lock.holder(path) or {}).get("pid", "unknown")
            only_one = f"has only one named '{self._name}'" if self._name else "has only one"
            raise WorkerRunning(
                f"A worker (process {pid}) already serves {home}, and a home {only_one}: stop it first, or set "
                "FSD_HOME to another folder."
            )
        # The supervisor only ends a worker that it started.
        self._lock_metadata = LockMetadata(worker_lock, pid=os.getpid(), supervised=SUPERVISED in os.environ)
        try:
            yield
        except Stopping:  # without a claimed job, or while the database was down
            pass
        finally:
            worker_lock.close()

    def _serve(self) -> None:
        device, memory = self._device.start(), self._device.memory()
        url = self._settings.resolved_database_url
        database = self._with_retries(lambda: open_database(url, busy_timeout=self._busy_timeout))
        self._repository = Repository(database)
        self._mirroring = Mirroring(self._settings.resolved_mlflow_uri, self._repository, self._has_urgent_work)
        if self._name:
            check_unique(self._name, self._with_retries(self._repository.workers))
        # Holding the lock proves that the previous worker is dead, even if its leases have not expired.
        self._with_retries(lambda: self._repository.worker_lost(*self._lock_metadata.inherited))
        self._lock_metadata.settle()
        logger.info("Worker %d is ready on %s.", os.getpid(), device)
        with ExitStack() as running:
            if self._scheduler is not None:
                running.enter_context(self._scheduler(self._repository))
            heartbeat = Heartbeat(self._repository, device, self._lease, memory, self._name)
            self._heartbeat = running.enter_context(heartbeat)
            while not self._stop.is_set():
                if job := self._next_job():
                    self._work(job)
                    if not self._name:
                        self._mirroring.after_runs()
                elif self._only is not None and self._has_ended(self._only):
                    break
                else:
                    self._tidy()
                    self._stop.wait(POLL)
        logger.info("Worker %d ends.", os.getpid())

    def _next_job(self) -> JobView | None:
        try:
            return self._with_retries(lambda: self._repository.claim(tuple(self._kinds), self._lease, self._only))
        except DataDamaged as error:  # work continues once somebody has repaired it
            logger.error("No job can be taken: %s", error)
            self._stop.wait(LAST_RETRY)
            return None

    def _has_ended(self, job_id: str) -> bool:
        """Whether a job has ended, or was deleted with its runs."""
        job = self._with_retries(lambda: self._repository.find_job(job_id))
        return job is None or job.status not in UNENDED

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.stop()
        signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once

    def _with_retries(self, action: Callable[[], _T]) -> _T:
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

    def _work(self, job: JobView) -> None:
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
            self._with_retries(lambda: self._repository.finish_job(job.id, token, status, sentence))
        logger.info("Job %s (%s): %s.", job.id, job.kind, status)

    @contextmanager
    def _claiming(self, job_id: str, token: str) -> Iterator[None]:
        """Keep the claim during the block, for :meth:`hand_back`."""
        self._claimed[job_id] = token
        try:
            yield
        finally:
            del self._claimed[job_id]

    def _give_up(self, job: JobView) -> None:
        """Fail a job that repeatedly lost its worker. Raises the error; its runs keep their figures."""
        error = (
            f"The worker was lost {job.stalled} times in a row on this job without progress, so it is not retried. "
            f"Finished prompts are kept. Look for the cause in {self._settings.home / 'logs'}, then resume it."
        )
        runs = self._runs_of(job)
        self._with_retries(lambda: give_up(self._repository, runs, error))
        raise FsdError(error)

    def _runs_of(self, job: JobView) -> list[str]:
        """Return the runs of a job; none for the playground and other jobs without runs."""
        match job.kind:
            case ExperimentJob.kind:
                id = ExperimentJob.read(job.payload).experiment_id
                experiment = self._with_retries(lambda: self._repository.experiment(id))
                return [run.id for run in experiment.runs]
            case RunJob.kind:
                return [RunJob.read(job.payload).run_id]
            case ExperimentRunJob.kind:
                return [ExperimentRunJob.read(job.payload).run_id]
        return []

    def _share(self, job: JobView) -> None:
        """Raise ``ExperimentShared`` where the runs of an experiment can be left to several workers, and are now."""
        if job.kind != ExperimentJob.kind:
            return
        experiment = self._repository.experiment(ExperimentJob.read(job.payload).experiment_id)
        if all(run.ended for run in experiment.runs):  # by other workers: nothing below asks for each of them
            self._check(job)
        if not can_be_shared(experiment):
            return
        others = self._name or self._scheduler or any(w.name and w.alive for w in self._repository.workers())
        if not others:
            return
        if self._repository.share_experiment(job.id, job.claim_token or ""):
            raise ExperimentShared

    def _provenance(self, job: JobView) -> dict[str, Any]:
        """Return the price of this machine, if known, and what tells runs of several workers apart."""
        price = self._settings.price_per_hour
        found: dict[str, Any] = {} if price is None else {"price_per_hour": price}
        if self._name or job.kind == ExperimentRunJob.kind:
            found[WORKER] = self._recorded_as or HOME_WORKER
        return found

    def _among(self, job: JobView) -> list[str]:
        """Return the runs of the experiment whose run a job is; none for other jobs."""
        if job.kind != ExperimentRunJob.kind:
            return []
        return [run.id for run in self._repository.experiment(ExperimentRunJob.read(job.payload).experiment_id).runs]

    def _check(self, job: JobView) -> None:
        """Raise whatever should end the job now."""
        if self._heartbeat.lost(job):
            raise ClaimLost
        if self._stop.is_set():
            raise Stopping
        if self._with_retries(lambda: self._repository.cancel_requested(job.id)):
            raise Cancelled("Cancelled by a user.")
        self._device.fit()

    def _do_runs(self, job: JobView) -> None:
        def before_a_prompt(run: RunView) -> None:
            self._serve_waiting()
            self._check(job)
            self._heartbeat.activity = f"{run.label}: prompt {run.prompts_done + 1} of {run.prompts_total}"

        observer = RunObserver(
            before_a_prompt,
            self._lock_metadata.writing,
            on_start=lambda _: self._check(job),
            provenance=self._provenance(job),
        )

        def execute() -> None:
            self._share(job)
            config = self._calibration(job)
            with self._device.generator(job.id) as generator:
                if config is None:
                    execute_runs(self._repository, self._runs_of(job), generator, observer, self._among(job))
                else:
                    calibrate(self._repository, job.id, config, generator, observer)

        try:
            self._with_retries(execute)
        except DeviceUnavailable as error:
            message = str(error)
            self._with_retries(lambda: give_up(self._repository, self._runs_of(job), message))
            raise

    def _calibration(self, job: JobView) -> CalibrationConfig | None:
        """Return the config of the job's calibration, or ``None`` for any other job."""
        if job.kind != ExperimentJob.kind:
            return None
        config = self._repository.experiment(ExperimentJob.read(job.payload).experiment_id).config
        return config if isinstance(config, CalibrationConfig) else None

    def _on_progress(self, what: str, done: int, total: int) -> None:
        progress = f"Fetching {what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
        self._heartbeat.activity = progress if total else what

    def _serve_waiting(self) -> None:
        """Run interactive jobs before an experiment's next prompt, then restore the threads of its pair."""
        if self._only is not None:
            return
        with self._device.aside():
            while not self._stop.is_set() and (job := self._repository.claim(WAITED_FOR, self._lease)):
                self._work(job)

    def _has_urgent_work(self) -> bool:
        """Whether postponable work should pause."""
        return self._stop.is_set() or self._repository.queue_length(WAITED_FOR) > 0

    def _playground(self, job: JobView) -> None:
        message = PlaygroundJob.read(job.payload)
        self._check(job)
        written = [chunk for _, chunk in self._with_retries(lambda: self._repository.chunks(job.id))]
        chunks = self._device.playground(job.id, message, written)
        self._heartbeat.activity = "Playground"
        with closing(chunks):
            playground.follow(
                chunks,
                write=lambda batch: self._with_retries(lambda: self._repository.append_chunks(job.id, batch)),
                check=lambda: self._check(job),
            )

    def _fetch(self, job: JobView) -> None:
        """Fetch the files of a task. What has arrived stays for the next job, if this one is stopped."""
        paced, activity = _Paced(), ""

        def before_a_file(what: str, done: int, total: int) -> None:
            nonlocal activity
            self._check(job)
            self._heartbeat.activity = activity = f"Fetching {what}: file {done + 1} of {total}"

        def in_a_file(done: int, size: int) -> None:
            if paced.is_due():
                self._serve_waiting()
                self._check(job)
                self._heartbeat.activity = f"{activity}, {done / 1e6:,.0f} of {size / 1e6:,.0f} MB"

        self._check(job)
        download.fetch(FetchJob.read(job.payload).task, self._settings.data_folder, before_a_file, in_a_file)

    def _fetch_pair(self, job: JobView) -> None:
        """Fetch the models of a pair. What has arrived stays for the next job, if this one is stopped."""
        ended: list[Exception] = []
        paced = _Paced()

        def on_progress(what: str, done: int, total: int) -> None:
            if not paced.is_due() and done < total:
                return
            self._on_progress(what, done, total)
            try:
                self._serve_waiting()
                if total:
                    token = job.claim_token or ""
                    self._with_retries(lambda: self._repository.report_bytes(job.id, token, done, total))
                self._check(job)
            except (Stopping, ClaimLost) as error:
                ended.append(error)
                raise Cancelled("The worker ends.") from None

        self._check(job)
        try:
            fetch_pair(get_pair(PairFetchJob.read(job.payload).pair), on_progress)
        except Cancelled:
            if ended:
                raise ended[0] from None
            raise

    def _bounds(self, job: JobView) -> None:
        message = BoundsJob.read(job.payload)
        run = self._with_retries(lambda: self._repository.run(message.run_id))

        def before_the_next(done: int, total: int) -> None:
            self._serve_waiting()
            self._check(job)
            self._heartbeat.activity = f"Bounds of {run.label}: position {done} of {total}"

        self._check(job)
        ask = self._device.bounds(job.id, run)
        bounds.measure(self._repository, run.id, ask, message.temperature, on_position=before_the_next)

    def _tidy(self) -> None:
        """Do the work that can wait until the queue is empty."""
        if self._only is not None:
            return
        if not self._preloaded:
            self._preload()
            return
        self._lock_metadata.idle()
        if self._name:  # copies are made, and old data deleted, by the worker of a home
            return
        self._mirroring.when_idle()
        if time.monotonic() >= self._prune_at:
            self._with_retries(self._prune)
            self._prune_at = time.monotonic() + 3600

    def _preload(self) -> None:
        self._preloaded = True
        try:
            self._device.preload()
        except Exception as error:  # the next request for the pair reports it
            logger.warning("The first pair is not loaded yet: %s", error)
        finally:
            self._heartbeat.activity = IDLE

    def _prune(self) -> None:
        """Delete data older than the settings keep."""
        self._repository.prune_workers(timedelta(days=1))
        self._repository.prune_playground(timedelta(days=self._settings.keep_playground_days))
        if self._settings.keep_traces_days is not None:
            self._repository.prune_traces(timedelta(days=self._settings.keep_traces_days))
