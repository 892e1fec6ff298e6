"""Says every two seconds that the worker lives, and renews its hold on what it works on."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fsd_core.errors import FsdError
from fsd_core.storage.database.repository import Repository
from fsd_core.storage.records import JobView

logger = logging.getLogger(__name__)

_INTERVAL = 2.0  # seconds
IDLE = "idle"


class Heartbeat:
    """A thread, since a prompt may take longer than a lease; a context manager. Every beat is a session of its own."""

    def __init__(self, repository: Repository, device: str, lease: float) -> None:
        """``lease``: seconds that a job stays ours without a beat."""
        self.activity = IDLE
        """what the worker is busy with, as the pages show it"""
        self._repository, self._device, self._lease = repository, device, lease
        self._held: dict[str, str] = {}  # job id: claim token
        self._lost: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @contextmanager
    def holding(self, job: JobView) -> Iterator[None]:
        """Renews the job's lease meanwhile."""
        assert job.claim_token is not None
        before = self.activity
        self._held[job.id] = job.claim_token
        try:
            yield
        finally:
            del self._held[job.id]
            self._lost.discard(job.id)
            self.activity = before

    def lost(self, job: JobView) -> bool:
        """Whether another worker has the job now, as can be after a time without a database."""
        return job.id in self._lost

    def _beat(self) -> None:
        silent = False
        while True:
            try:
                self._repository.report_worker(os.getpid(), socket.gethostname(), self._device, self.activity)
                for job_id, token in list(self._held.items()):
                    if not self._repository.heartbeat(job_id, token, self._lease):
                        self._lost.add(job_id)
                silent = False
            except FsdError as error:
                if not silent:
                    logger.warning("No heartbeat: %s", error)
                silent = True
            if self._stop.wait(_INTERVAL):
                return
