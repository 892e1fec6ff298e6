"""Playground jobs as pages follow them: a poll reads only the chunks that are new."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from cachetools import TTLCache

from dashboard.playground.setting_views import FollowedJob, OutputPanel
from fsd_core.errors import UnknownName
from fsd_core.roles import same_name
from fsd_core.storage.messages import PlaygroundJob

if TYPE_CHECKING:
    from dashboard.ui.question import Asked
    from fsd_core.storage.database.repository import Repository

_MOST = 100
_SECONDS = 60.0


class FollowedJobs:
    """Reads jobs, and keeps for a minute what was read: the chunks of a job never change."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._read: TTLCache[str, FollowedJob] = TTLCache(_MOST, _SECONDS)
        self._lock = threading.Lock()

    def read(self, id: str, owner: str | None) -> FollowedJob:
        """Return a job as it is now. Raises ``UnknownName`` for any other job and for somebody else's."""
        state = self._repository.job(id)  # read before the chunks: an ended job writes no more
        if state.kind != PlaygroundJob.kind:
            raise UnknownName("There is no such job of the Playground.")
        message = PlaygroundJob.read(state.payload)
        if message.owner is not None and not same_name(message.owner, owner or ""):
            raise UnknownName("This text is somebody else's: write one of your own.")
        with self._lock:
            job = self._read.get(id)
        if job is None:
            job = FollowedJob(id, message, tuple(OutputPanel(decoding) for decoding in message.decodings))
        job = job.with_chunks(self._repository.chunks(id, job.after))
        with self._lock:
            self._read[id] = job
        return replace(job, status=state.status, cancel_requested=state.cancel_requested, error=state.error)


def owner_of(asked: Asked) -> str | None:
    """Return the owner of the texts that somebody asks for, or ``None`` if nobody has signed in."""
    return asked.person.name if asked.person.known else None
