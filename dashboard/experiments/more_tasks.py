"""Tasks whose files are not here yet: the worker fetches them from the hub, one click each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from dashboard.experiments.experiment_list import OPEN_STATUSES
from dashboard.ui.actions import button
from dashboard.ui.components import notice
from dashboard.ui.templates import Html, render
from fsd_core.errors import DataDamaged, InvalidSetting
from fsd_core.storage.messages import FetchJob
from fsd_core.tasks import TASKS, Task
from fsd_core.tasks.download import fetchable, origin

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import JobView, WorkerView

_PRIORITY = 5
NEWS = timedelta(minutes=10)
"""for so long a task that was fetched is told of"""
_LEAD = (
    "Benchmarks of the field, from the Hugging Face hub into this installation's data folder. The worker fetches them; "
    "then they are in the list of tasks."
)
OTHERS = "The files of {} come from their authors: python -m fsd_core tasks says which are wanted, and where."


class Fetch(NamedTuple):
    """A task that can be fetched, or was, and the last job that tried."""

    task: Task
    job: JobView | None


def fetches(repository: Repository) -> list[Fetch]:
    """The tasks that are missing, and those that came a short while ago, in the order of all tasks."""
    latest = _latest(repository.latest_jobs(FetchJob.kind))
    fresh = {name for name, job in latest.items() if job.finished_at and datetime.now(UTC) - job.finished_at < NEWS}
    return [
        Fetch(task, latest.get(name))
        for name, task in TASKS.items()
        if fetchable(task) or (name in fresh and task.hub and task.available)
    ]


def request(repository: Repository, act: str, kind: str, name: str) -> None:
    """Leaves it to the worker to fetch a task, unless that is under way. Raises ``InvalidSetting``, ``UnknownName``."""
    if (act, kind) != ("fetch", "task"):
        raise InvalidSetting("This page offers no such thing: reload it.")
    origin(name[:40])  # refuses a name that is none, which may be long
    last = _latest(repository.latest_jobs(FetchJob.kind)).get(name)
    if last is None or last.status not in OPEN_STATUSES:
        repository.enqueue(FetchJob(name), _PRIORITY)


def _latest(jobs: Iterable[JobView]) -> Mapping[str, JobView]:
    """The newest job of each task, of jobs from the newest on; jobs that cannot be read are left aside."""
    found: dict[str, JobView] = {}
    for job in jobs:
        try:
            found.setdefault(FetchJob.read(job.payload).task, job)
        except DataDamaged:
            continue
    return found


def more_tasks_html(fetches: Iterable[Fetch], worker: WorkerView | None) -> Html:
    """A line for each task, with what it is, whose it is, and how far it is fetched."""
    lines = [_line(fetch, worker) for fetch in fetches]
    others = [task.title for task in TASKS.values() if not task.has_files and not task.hub]
    told = OTHERS.format(_listed(others)) if others else ""
    return render("experiments/more_tasks.html", "tasks", _LEAD, lines, told)


def _listed(titles: list[str]) -> str:
    """Titles in a sentence; the parts of Spec-Bench by its name alone."""
    *first, last = dict.fromkeys(title.partition(",")[0] for title in titles)
    return f"{', '.join(first)} and {last}" if first else last


def _line(fetch: Fetch, worker: WorkerView | None) -> Html:
    task, job = fetch
    where, licence = origin(task.name)
    waiting = job is not None and job.status in OPEN_STATUSES
    about = f"{task.published:,} prompts, licence {licence}" if task.published else f"Licence {licence}"
    act = Html() if task.has_files else button("fetch", "task", task.name, "Fetch", disabled=waiting)
    return render("experiments/more_tasks.html", "task", task, about, where, act, _state(task, job, worker))


def _state(task: Task, job: JobView | None, worker: WorkerView | None) -> Html:
    if task.has_files:
        return notice(f"{task.title} is in the list of tasks.")
    if job is None or job.status == "finished":
        return Html()
    if job.status in OPEN_STATUSES:
        activity = worker.activity if worker is not None and worker.alive else None
        if activity is None:
            return notice("Waiting: nothing fetches now. The head of this page says what is missing.")
        fetching = job.status == "running" and activity.startswith("Fetching")
        return notice(f"{activity}." if fetching else "The worker will begin shortly.")
    return notice(job.error or "It was stopped.", "warn")
