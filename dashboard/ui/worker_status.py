"""The worker's status: in the header of every page, and as a notice on pages that need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dashboard.ui.components import notice
from dashboard.ui.templates import Html, joined, render
from fsd_core.errors import FsdError

if TYPE_CHECKING:
    from fsd_core.settings import Executor
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import WorkerView


class WorkerAbsence(NamedTuple):
    """The texts for a missing worker."""

    missing: str
    remedy: str


_NO_WORKER = WorkerAbsence("worker is not running", "Start it with: python -m fsd_core worker.")
_ABSENCES: dict[Executor, WorkerAbsence] = {
    "worker": _NO_WORKER,
    "ray": _NO_WORKER,
    "in-process": WorkerAbsence(
        "app's computing thread is not running",
        "The app begins it anew every few seconds. If this stays, the app's log says why: mend that, or restart "
        "the app.",
    ),
}


def worker_status(repository: Repository, executor: Executor) -> str:
    """Return the worker's status in a few words, or the database's error if it cannot be read."""
    try:
        worker = repository.worker()
        waiting = repository.queue_length()
        measured = repository.measured_prompts()
    except FsdError as error:
        return _status("off", "database unavailable", "", str(error))
    if worker is None or not worker.alive:
        return _status("off", _ABSENCES[executor].missing, "", _ABSENCES[executor].remedy)
    queue = f"{waiting} waiting" if waiting else ""
    if worker.activity in ("", "idle", "ready"):
        return _status("ready", "worker ready", " · ".join(filter(None, (worker.device, queue))))
    more = " · ".join(filter(None, (worker.activity, worker.device, queue)))
    return joined([_status("busy", "busy", more), render("ui/page.html", "progress", *measured)])


def _status(state: str, word: str, more: str, hint: str = "") -> Html:
    return render("ui/page.html", "worker", state, word, more, hint or more)


def absence_notice(worker: WorkerView | None, executor: Executor, waiting: bool = False) -> Html:
    """Return a notice that nothing is generated without a worker, or nothing if it is alive. ``waiting`` is true if
    experiments wait."""
    if worker is not None and worker.alive:
        return Html()
    absent = _ABSENCES[executor]
    text = f"The {absent.missing}, so nothing is generated. {absent.remedy}"
    return notice(text + (" Waiting experiments then continue where they stopped." if waiting else ""), "warn")
