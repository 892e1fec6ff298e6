"""Work in progress, recorded in a process's lock file. The next process reads there what a killed one was doing.

An entry is written before every prompt, at the cost of one system call and no transaction.
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
    """The metadata of the holder. Until :meth:`settle`, the entry of the previous holder is carried along."""

    def __init__(self, lock: Lock, **about: Any) -> None:
        self._lock, self._about = lock, about
        self._claims, self._prompts = _claims(lock.previous_metadata), _prompts(lock.previous_metadata)
        self._write()

    @property
    def inherited(self) -> tuple[Claims, Prompts]:
        """Claims and prompts of the previous holder when it was killed; empty if it ended properly."""
        return dict(self._claims), dict(self._prompts)

    def settle(self) -> None:
        """Drop the inherited entry once it is handled."""
        self._claims, self._prompts = {}, {}
        self._write()

    def idle(self) -> None:
        """Record that the worker is idle for the first time, with the first pair loaded."""
        if "idle" not in self._about:
            self._about["idle"] = True
            self._write()

    @contextmanager
    def working_on(self, job_id: str, token: str) -> Iterator[None]:
        """Record a claimed job during the block."""
        self._claims[job_id] = token
        self._write()
        try:
            yield
        finally:
            del self._claims[job_id]
            self._write()

    @contextmanager
    def writing(self, run_id: str, positions: Sequence[int]) -> Iterator[None]:
        """Record the prompts of a run that are being written during the block."""
        self._prompts = {run_id: list(positions)}
        self._write()
        try:
            yield
        finally:
            self._prompts = {}
            self._write()

    def _write(self) -> None:
        self._lock.write_metadata(**self._about, claims=self._claims, prompts=self._prompts)


def _claims(metadata: Mapping[str, Any]) -> dict[str, str]:
    claims = metadata.get("claims")
    return {str(job_id): str(token) for job_id, token in claims.items()} if isinstance(claims, dict) else {}


def _prompts(metadata: Mapping[str, Any]) -> dict[str, list[int]]:
    prompts = metadata.get("prompts")
    if not isinstance(prompts, dict):
        return {}
    return {str(run_id): [p for p in positions if isinstance(p, int)] for run_id, positions in prompts.items()}
