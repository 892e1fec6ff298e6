"""A heartbeat every two seconds, which also renews the leases of claimed jobs."""

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
    """A thread, since a prompt may take longer than a lease. Used as a context manager; each beat is its own
    session."""

    def __init__(
        self, repository: Repository, device: str, lease: float, memory: int | None = None, name: str = ""
    ) -> None:
        """``lease``: seconds until a claim without a heartbeat expires. ``memory``: bytes that the device has.
        ``name``: of a worker beside others."""
        self.activity = IDLE
        """current work of the worker, as displayed on the pages"""
        self._repository, self._device, self._lease, self._memory = repository, device, lease, memory
        self._name = name
        self._tokens: dict[str, str] = {}  # job id: claim token
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
        """Renew the lease of the job during the block."""
        assert job.claim_token is not None
        previous = self.activity
        self._tokens[job.id] = job.claim_token
        try:
            yield
        finally:
            del self._tokens[job.id]
            self._lost.discard(job.id)
            self.activity = previous

    def lost(self, job: JobView) -> bool:
        """Whether another worker has taken the job, as may happen after an outage of the database."""
        return job.id in self._lost

    def _beat(self) -> None:
        silent = False
        while True:
            try:
                who = os.getpid(), socket.gethostname(), self._device
                self._repository.report_worker(*who, self.activity, self._memory, self._name)
                for job_id, token in list(self._tokens.items()):
                    if not self._repository.heartbeat(job_id, token, self._lease):
                        self._lost.add(job_id)
                silent = False
            except FsdError as error:
                if not silent:
                    logger.warning("No heartbeat: %s", error)
                silent = True
            if self._stop.wait(_INTERVAL):
                return
