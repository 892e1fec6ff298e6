"""Time given to a calibration that its minutes ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fsd_core.calibration.status import ended_by_time
from fsd_core.calibration.summary import whole_minutes
from fsd_core.errors import InvalidSetting
from fsd_core.worker import gpu_billing
from fsd_core.worker.run_actions import alone

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def go_on(repository: Repository, home: Path, id: str, minutes: float | None = None) -> float:
    """Leaves it to the worker to try the finalists of a calibration for so many minutes more, by default as many as
    it is expected to want; the minutes.

    Raises ``InvalidSetting`` where something else than the time ended it, or nobody can say how long it will take; as
    ``grant_minutes`` does; and ``FsdError`` while another process works on it.
    """
    with alone(home, "experiment", id):
        more = ended_by_time(repository, id).more
        if minutes is None:
            if more is None:
                raise InvalidSetting(f"Nobody can say how long the calibration {id} will take: say how many minutes.")
            minutes = whole_minutes(more.minutes)
        repository.grant_minutes(id, minutes)
    gpu_billing.note(id)
    return minutes
