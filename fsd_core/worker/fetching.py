"""Fetches of tasks and models as jobs. What has arrived stays for the next job, if one is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fsd_core.errors import Cancelled
from fsd_core.evaluation.observer import Interrupted
from fsd_core.models.hub import fetch_pair
from fsd_core.models.model_pairs import get_pair
from fsd_core.tasks import download

PROGRESS = 0.5  # seconds between two reports of a fetch


class Stopping(Interrupted):
    """The worker was asked to end. The current job is returned to the queue."""


class ClaimLost(Interrupted):
    """Another worker has claimed the job, which must not be touched any more."""


@dataclass(frozen=True)
class Pauses:
    """Actions of the worker between two pieces of a fetch."""

    check: Callable[[], None]
    """raises whatever should end the job now"""
    serve_waiting: Callable[[], None]
    """runs the jobs that somebody waits for"""
    show: Callable[[str], None]
    """shows on the pages what the worker does"""


class _Paced:
    """Says when a fetch is to be reported again."""

    def __init__(self) -> None:
        self._last = -PROGRESS

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._last + PROGRESS:
            return False
        self._last = now
        return True


def progress_text(what: str, done: int, total: int) -> str:
    """Return the text on a fetch in progress, with ``done`` of ``total`` bytes where the total is known."""
    return f"Fetching {what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB" if total else what


def fetch_task(name: str, folder: Path, pauses: Pauses) -> None:
    """Fetch the files of a task into ``folder``."""
    paced, activity = _Paced(), ""

    def before_a_file(what: str, done: int, total: int) -> None:
        nonlocal activity
        pauses.check()
        activity = f"Fetching {what}: file {done + 1} of {total}"
        pauses.show(activity)

    def in_a_file(done: int, size: int) -> None:
        if paced.is_due():
            pauses.serve_waiting()
            pauses.check()
            pauses.show(f"{activity}, {done / 1e6:,.0f} of {size / 1e6:,.0f} MB")

    download.fetch(name, folder, before_a_file, in_a_file)


def fetch_models(pair: str, pauses: Pauses, report: Callable[[int, int], None]) -> None:
    """Fetch the models of a pair. ``report`` stores how many bytes of how many have arrived."""
    ended: list[Exception] = []
    paced = _Paced()

    def on_progress(what: str, done: int, total: int) -> None:
        if not paced.is_due() and done < total:
            return
        pauses.show(progress_text(what, done, total))
        try:
            pauses.serve_waiting()
            if total:
                report(done, total)
            pauses.check()
        except (Stopping, ClaimLost) as error:
            ended.append(error)
            raise Cancelled("The worker ends.") from None

    try:
        fetch_pair(get_pair(pair), on_progress)
    except Cancelled:
        if ended:
            raise ended[0] from None
        raise
