"""Limits of a public demo's Playground for visitors who are not members."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cachetools import LRUCache

from fsd_core.config import DecodingConfig
from fsd_core.errors import FsdError, Refused
from fsd_core.models.model_pairs import ADAPTED, DRAFTED
from fsd_core.roles import Person
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.records import UNENDED

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

_MOST_TOKENS = 128  # per text
_MOST_SETTINGS = 2  # at once
MOST_WAITING = 6  # texts of all visitors
_PAIRS = ("bundled", DRAFTED, ADAPTED)  # others would download gigabytes for a visitor
VISITORS_NOTE = (
    f"This is a public demo: visitors write up to {_MOST_TOKENS} tokens with up to {_MOST_SETTINGS} settings at once, "
    "one text after the other. Experiments and review are for members."
)


class Visitors:
    """Enforces the visitors' limits and remembers each visitor's last job."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self._last_jobs: LRUCache[str, str] = LRUCache(1000)
        self._lock = threading.Lock()

    def begin(
        self, person: Person, visit: str, pair: str, decodings: Sequence[DecodingConfig], enqueue: Callable[[], str]
    ) -> None:
        """Enqueue a job, or raise ``Refused`` with the limit that a request exceeds.

        ``visit`` identifies somebody who has not signed in. Of two requests at once, the second finds the job of the
        first.
        """
        if person.may("author"):
            enqueue()
            return
        if pair not in _PAIRS:
            raise Refused("In this demo visitors choose among the small pairs: bundled and SmolLM2 135M.")
        if len(decodings) > _MOST_SETTINGS:
            raise Refused(f"In this demo visitors compare up to {_MOST_SETTINGS} settings: remove the last ones.")
        if max(decoding.max_new_tokens for decoding in decodings) > _MOST_TOKENS:
            raise Refused(f"In this demo visitors write up to {_MOST_TOKENS} tokens: lower “Tokens”.")
        visitor = f"person {person.name}" if person.known else f"visit {visit}"
        with self._lock:
            if self._is_open(self._last_jobs.get(visitor)):
                raise Refused("Your last text is still being written: stop it, or wait for its end.")
            if self.repository.queue_length((PlaygroundJob.kind,)) >= MOST_WAITING:
                raise Refused(f"{MOST_WAITING} texts of visitors wait already: try again in a minute.")
            self._last_jobs[visitor] = enqueue()

    def _is_open(self, job: str | None) -> bool:
        if job is None:
            return False
        try:
            return self.repository.job(job).status in UNENDED
        except FsdError:  # it is no longer stored
            return False
