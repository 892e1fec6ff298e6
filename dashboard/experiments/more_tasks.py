"""Tasks whose files are missing. The worker fetches them from the hub, one click each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from dashboard.ui.actions import button
from dashboard.ui.components import notice
from dashboard.ui.templates import Html, render
from fsd_core.errors import DataDamaged
from fsd_core.models.pair_check import size
from fsd_core.settings import get_settings
from fsd_core.storage.messages import FetchJob
from fsd_core.storage.records import UNENDED
from fsd_core.tasks import TASKS, Task
from fsd_core.tasks.download import fetchable, missing_bytes, origin

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import JobView, WorkerView

_PRIORITY = 5
REPORTED_FOR = timedelta(minutes=10)
"""how long the page reports a fetched task"""
_LEAD = (
    "Benchmarks of the field, from the Hugging Face hub into this installation's data folder. The worker fetches them; "
    "then they are in the list of tasks."
)
MANUAL_TASKS_NOTE = (
    "The files of {} come from their authors: python -m fsd_core tasks says which are wanted, and where."
)


class Fetch(NamedTuple):
    """A task that can be fetched or was fetched, and the last job that tried."""

    task: Task
    job: JobView | None


def fetches(repository: Repository) -> list[Fetch]:
    """Return the missing tasks and those fetched recently, in the order of all tasks."""
    latest = _latest(repository.latest_jobs(FetchJob.kind))
    fresh = {
        name for name, job in latest.items() if job.finished_at and datetime.now(UTC) - job.finished_at < REPORTED_FOR
    }
    return [
        Fetch(task, latest.get(name))
        for name, task in TASKS.items()
        if fetchable(task) or (name in fresh and task.hub and task.available)
    ]


def request(repository: Repository, name: str) -> None:
    """Let the worker fetch a task, unless a job does so already. Raises ``UnknownName``."""
    origin(name[:40])  # rejects an unknown name, which may be long
    last = _latest(repository.latest_jobs(FetchJob.kind)).get(name)
    if last is None or last.status not in UNENDED:
        repository.enqueue(FetchJob(name), _PRIORITY)


def _latest(jobs: Iterable[JobView]) -> Mapping[str, JobView]:
    """Return the newest job of each task, given jobs newest first. Unreadable jobs are skipped."""
    newest: dict[str, JobView] = {}
    for job in jobs:
        try:
            newest.setdefault(FetchJob.read(job.payload).task, job)
        except DataDamaged:
            continue
    return newest


def more_tasks_html(fetches: Iterable[Fetch], worker: WorkerView | None) -> Html:
    """Return a line for each task: what it is, its source, and how far it is fetched."""
    lines = [_line(fetch, worker) for fetch in fetches]
    manual = [task.title for task in TASKS.values() if not task.has_files and not task.hub]
    note = MANUAL_TASKS_NOTE.format(_listed(manual)) if manual else ""
    return render("experiments/more_tasks.html", "tasks", _LEAD, lines, note)


def _listed(titles: list[str]) -> str:
    """Join titles in a phrase. The parts of Spec-Bench are listed once, under its name."""
    *first, last = dict.fromkeys(title.partition(",")[0] for title in titles)
    return f"{', '.join(first)} and {last}" if first else last


def _line(fetch: Fetch, worker: WorkerView | None) -> Html:
    task, job = fetch
    source, licence = origin(task.name)
    waiting = job is not None and job.status in UNENDED
    about = f"{task.published:,} prompts, licence {licence}" if task.published else f"Licence {licence}"
    download = missing_bytes(task, get_settings().data_folder)
    about += f", {size(download)}" if download else ""
    action = Html() if task.has_files else button("fetch", "task", task.name, "Fetch", disabled=waiting)
    return render("experiments/more_tasks.html", "task", task, about, source, action, _state(task, job, worker))


def _state(task: Task, job: JobView | None, worker: WorkerView | None) -> Html:
    if task.has_files:
        return notice(f"{task.title} is in the list of tasks.")
    if job is None or job.status == "finished":
        return Html()
    if job.status in UNENDED:
        activity = worker.activity if worker is not None and worker.alive else None
        if activity is None:
            return notice("Waiting: nothing fetches now. The head of this page says what is missing.")
        fetching = job.status == "running" and activity.startswith("Fetching")
        return notice(f"{activity}." if fetching else "The worker will begin shortly.")
    return notice(job.error or "It was stopped.", "warn")
