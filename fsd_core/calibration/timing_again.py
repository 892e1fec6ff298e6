"""Timing the finalists of a calibration again: the same prompts, for their times alone.

What was accepted, solved and said of accuracy stays: a text depends on the seed and its prompt, not on when it is
written. The runs take turns prompt by prompt, like all runs of an experiment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsd_core.calibration.status import ended, measurements
from fsd_core.config import RunConfig
from fsd_core.config.calibration_config import FEWEST_CHOOSING
from fsd_core.errors import NotEnough

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

TIMED_SECONDS = 60.0
"""of decoding that timing again should take"""


def runs_again(repository: Repository, id: str) -> list[RunConfig]:
    """Return the runs that time the target, exact SD and the finalists of a calibration again, for about a minute.

    They are on fresh prompts if these settings did any. Raises as ``ended``, and ``InvalidSetting`` where one setting
    alone was timed.
    """
    config, runs, outcome = ended(repository, id, "the finalists of one are timed again")
    evidence = measurements(repository, config, runs)
    settings = outcome.timed
    start = 0 if evidence.lacks_any(settings, config.choosing, config.choosing + FEWEST_CHOOSING) else config.choosing
    seconds = sum(evidence.seconds_each(setting) for setting in settings)
    prompts = max(FEWEST_CHOOSING, int(TIMED_SECONDS / seconds) if seconds else FEWEST_CHOOSING)
    end = min(start + prompts, config.limit)
    while end > start and evidence.lacks_any(settings, start, end):
        end -= 1
    if end - start < FEWEST_CHOOSING:
        raise NotEnough(f"The finalists of the calibration {id} share too few prompts to be timed again.")
    return config.round_runs(settings, start, end, again=True)
