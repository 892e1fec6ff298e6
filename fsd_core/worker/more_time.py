"""More time for a calibration that ran out of minutes, and a second time for its finalists."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fsd_core.calibration.status import ended_by_time
from fsd_core.calibration.summary import whole_minutes
from fsd_core.calibration.timing_again import runs_again
from fsd_core.errors import NotGiven
from fsd_core.worker import gpu_billing
from fsd_core.worker.run_actions import exclusive_lock

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def go_on(repository: Repository, home: Path, id: str, minutes: float | None = None) -> float:
    """Grant a calibration more minutes, by default as many as its finalists are expected to need, and leave the work to
    the worker. Returns the minutes.

    Raises ``InvalidSetting`` if it did not end by time or the time needed is unknown; as ``grant_minutes`` does; and
    ``FsdError`` while another process works on it.
    """
    with exclusive_lock(home, "experiment", repository.experiment(id).id):
        more = ended_by_time(repository, id).more
        if minutes is None:
            if more is None:
                raise NotGiven(f"Nobody can say how long the calibration {id} will take: say how many minutes.")
            minutes = whole_minutes(more.minutes)
        repository.grant_minutes(id, minutes)
    gpu_billing.remember_requester(id)
    return minutes


def time_finalists(repository: Repository, home: Path, id: str) -> int:
    """Have the worker time the finalists of a calibration again, and return on how many prompts.

    Raises as ``runs_again`` and ``time_again``, and ``FsdError`` while another process works on it.
    """
    with exclusive_lock(home, "experiment", repository.experiment(id).id):
        configs = runs_again(repository, id)
        repository.time_again(id, configs)
    gpu_billing.remember_requester(id)
    return configs[0].limit
