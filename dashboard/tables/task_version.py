"""The version of a task of one's own that a run was measured on, and the link to its lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.ui.quantities import moment
from dashboard.ui.templates import Html, render

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def lines_link(task: str, words: str) -> Html:
    """A link to the lines of a version, which ``dashboard/experiments/task_file.py`` serves; nothing for a task of the
    program."""
    return render("tables/measured.html", "lines", task, words) if "@" in task else Html()


def version_facts(repository: Repository, task: str) -> dict[str, str]:
    """What is known of a version; nothing for a task of the program."""
    name, own, version = task.partition("@")
    if not own:
        return {}
    views = repository.task_versions(name)
    view = next((one for one in views if one.version == version), None)
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
