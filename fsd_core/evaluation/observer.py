"""Callbacks during runs, which may also serve other requests meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from fsd_core.storage.records import RunView

Writing = Callable[[str, Sequence[int]], AbstractContextManager[None]]
"""(run id, positions): context manager around all work on these prompts, so that a crash can be attributed to them"""


class Interrupted(Exception):
    """Leaves all runs to be resumed, wherever it is raised."""


@dataclass(frozen=True)
class RunObserver:
    """Callbacks of the runner. If ``on_start``, ``on_prompt`` or ``on_wait`` raises ``Cancelled``, the remaining runs
    end with their metrics so far. Any other exception leaves the runs to be resumed; of ``on_wait`` it is
    ``Interrupted``."""

    on_prompt: Callable[[RunView], None] = lambda run: None
    """called before each prompt, with the current state of its run"""
    writing: Writing = lambda run_id, positions: nullcontext()
    on_start: Callable[[RunView], None] = lambda run: None
    """called before a run's pair is loaded"""
    on_calibration_round: Callable[[int, int, int], None] = lambda settings, start, end: None
    """called when a calibration starts new runs: number of settings, first prompt, and the one after the last"""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """recorded with each run beside what its generator says"""
    on_wait: Callable[[], None] = lambda: None
    """called now and then while an engine is awaited"""


UNOBSERVED = RunObserver()
