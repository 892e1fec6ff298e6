"""Holds a process in the midst of a prompt, so that a test meets it at that very point however the machine pauses."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.tools.sizes import PATIENCE

_ALL = 1_000_000


class Turnstile:
    """Lets so many prompts pass; the next one is held when its text is there and not yet recorded.

    The prompts that passed are recorded by then, for one process does them one by one. Test and process share a folder.
    """

    def __init__(self, folder: Path, prompts: int | None = None) -> None:
        """``prompts``: as :meth:`allow`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._allowed, self._held = folder / "allowed", folder / "held"
        if prompts is not None or not self._allowed.exists():
            self.allow(prompts)

    def allow(self, prompts: int | None) -> None:
        """From now on so many prompts in all; ``None``: any number."""
        _write(self._allowed, _ALL if prompts is None else prompts)

    def until_held(self) -> None:
        """Waits until the process stands before the next prompt after those that may pass."""
        deadline = time.monotonic() + PATIENCE
        while _read(self._held) != _read(self._allowed):
            assert time.monotonic() < deadline, f"{_read(self._held)} of {_read(self._allowed)} prompts have passed"
            time.sleep(0.02)

    def stand(self) -> None:
        """In the process itself, before it begins."""
        from fsd_core.evaluation import harness

        written, passed = harness.written, 0

        def held_back(pair, tokens: list[int]) -> str:
            nonlocal passed
            while passed >= (_read(self._allowed) or 0):
                _write(self._held, passed)
                time.sleep(0.02)
            passed += 1
            return written(pair, tokens)

        harness.written = held_back


def _read(file: Path) -> int | None:
    return int(file.read_text()) if file.exists() else None


def _write(file: Path, number: int) -> None:
    """In one step, for somebody may be reading."""
    part = file.with_suffix(f".{os.getpid()}")
    part.write_text(str(number))
    part.replace(file)
