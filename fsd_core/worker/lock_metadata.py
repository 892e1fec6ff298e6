"""What a process is working on, kept in its lock's file: the next process reads there what a killed one was doing.

Written before every prompt, so it costs one system call and no transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fsd_core.worker.lock import Lock

Claims = Mapping[str, str]
"""claim tokens by job id"""
Prompts = Mapping[str, Sequence[int]]
"""positions of the prompts that were being written, by run id"""


class LockMetadata:
    """The holder's words. Until :meth:`settle`, those of the holder before it are carried along."""

    def __init__(self, lock: Lock, **about: Any) -> None:
        self._lock, self._about = lock, about
        self._claims, self._prompts = _claims(lock.last_words), _prompts(lock.last_words)
        self._sign()

    @property
    def inherited(self) -> tuple[Claims, Prompts]:
        """What the holder before this one was doing when it was killed; empty if it ended properly."""
        return dict(self._claims), dict(self._prompts)

    def settle(self) -> None:
        """What was inherited is dealt with."""
        self._claims, self._prompts = {}, {}
        self._sign()

    def idle(self) -> None:
        """For the first time there is nothing to do, and the first pair is loaded."""
        if "idle" not in self._about:
            self._about["idle"] = True
            self._sign()

    @contextmanager
    def working_on(self, job_id: str, token: str) -> Iterator[None]:
        """A claimed job."""
        self._claims[job_id] = token
        self._sign()
        try:
            yield
        finally:
            del self._claims[job_id]
            self._sign()

    @contextmanager
    def writing(self, run_id: str, positions: Sequence[int]) -> Iterator[None]:
        """Prompts of a run that are being written."""
        self._prompts = {run_id: list(positions)}
        self._sign()
        try:
            yield
        finally:
            self._prompts = {}
            self._sign()

    def _sign(self) -> None:
        self._lock.sign(**self._about, claims=self._claims, prompts=self._prompts)


def _claims(words: Mapping[str, Any]) -> dict[str, str]:
    found = words.get("claims")
    return {str(job_id): str(token) for job_id, token in found.items()} if isinstance(found, dict) else {}


def _prompts(words: Mapping[str, Any]) -> dict[str, list[int]]:
    found = words.get("prompts")
    if not isinstance(found, dict):
        return {}
    return {str(run_id): [p for p in positions if isinstance(p, int)] for run_id, positions in found.items()}
