"""The version of a custom task that a run was measured on, and the link to its lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.ui.quantities import moment
from dashboard.ui.templates import Html, render

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def lines_link(task: str, label: str) -> Html:
    """Return a link to the lines of a version, which ``dashboard/experiments/task_file.py`` serves.

    It is empty for a built-in task.
    """
    return render("tables/measured.html", "lines", task, label) if "@" in task else Html()


def version_facts(repository: Repository, task: str) -> dict[str, str]:
    """Return the facts of a custom task's version, or nothing for a built-in task."""
    name, separator, version = task.partition("@")
    if not separator:
        return {}
    views = repository.task_versions(name)
    view = next((candidate for candidate in views if candidate.version == version), None)
    if view is None:
        return {"Version of the task": f"{version}, whose lines are not here: they were not imported with the run"}
    newer = "" if view == views[0] else f"; the latest is {views[0].version}"
    return {
        "Title of the task": view.title or name,
        "Version of the task": f"{version}{newer}",
        "Scorer": view.scorer,
        "Prompts of the task": f"{view.prompts:,}",
        "Task added": f"{view.added_by}, {moment(view.added_at)}",
    }
