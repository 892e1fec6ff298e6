"""How the worker is: in the head of every page, and where nothing moves without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.ui.components import escape, notice
from fsd_core.errors import FsdError

if TYPE_CHECKING:
    from fsd_core.tracking.database.repository import Repository
    from fsd_core.tracking.records import WorkerView


def worker_status(repository: Repository) -> str:
    """How the worker is, in a few words; what is wrong with the database, where it cannot be asked."""
    try:
        worker = repository.worker()
        waiting = repository.queue_length()
    except FsdError as error:
        return _status("off", "database unavailable", "", str(error))
    if worker is None or not worker.alive:
        return _status("off", "worker is not running", "", "Start it with: python -m fsd_core worker")
    queue = f"{waiting} waiting" if waiting else ""
    if worker.activity in ("", "idle", "ready"):
        return _status("ready", "worker ready", " · ".join(filter(None, (worker.device, queue))))
    return _status("busy", "busy", " · ".join(filter(None, (worker.activity, worker.device, queue))))


def _status(state: str, word: str, more: str, hint: str = "") -> str:
    tail = f"<span>{escape(more)}</span>" if more else ""
    return (
        f'<div class="fsd-worker {state}" role="status" title="{escape(hint or more)}"><i></i><b>{word}</b>{tail}</div>'
    )


def absence_notice(worker: WorkerView | None, waiting: bool) -> str:
    """Says that nothing will move, where no worker is there; empty otherwise."""
    if worker is not None and worker.alive:
        return ""
    text = "The worker is not running, so nothing is generated. Start it with: python -m fsd_core worker."
    return notice(text + (" Waiting experiments then continue where they stopped." if waiting else ""), "warn")
