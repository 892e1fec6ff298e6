"""Who is told while runs are done, and may serve others meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from fsd_core.storage.records import RunView

Writing = Callable[[str, Sequence[int]], AbstractContextManager[None]]
"""(run id, positions): entered around whatever is done for these prompts, so that a death can be laid to them"""


@dataclass(frozen=True)
class RunObserver:
    """Raised from ``on_start`` and ``on_prompt``, ``Cancelled`` ends what is left, with the figures of what is done;
    anything else leaves the runs to be continued."""

    on_prompt: Callable[[RunView], None] = lambda run: None
    """called before each prompt, with its run as it stands"""
    writing: Writing = lambda run_id, positions: nullcontext()
    on_start: Callable[[RunView], None] = lambda run: None
    """called before a run's pair is loaded"""
    on_turn: Callable[[int, int, int], None] = lambda settings, start, end: None
    """called where a calibration begins new runs: of so many settings, on the prompts from one to before another"""


UNOBSERVED = RunObserver()
