"""Commands that list tasks and runs, and fetch the files of a task."""

from __future__ import annotations

from typing import Annotated

import typer

from fsd_core.cli import output
from fsd_core.cli import shared_options as options
from fsd_core.errors import FsdError
from fsd_core.formatting import count
from fsd_core.settings import get_settings

_ID_LENGTH = 8
"""characters of an id that a table shows"""


def tasks() -> None:
    """List the tasks and their missing files. `task list` lists your own tasks."""
    from fsd_core.tasks import TASKS

    rows = []
    for task in TASKS.values():
        availability = f"needs {', '.join(task.files)} in {get_settings().data_folder}"
        if task.available:
            try:
                availability = count(task.size, "prompt")
                if task.repeats:
                    availability += f", without {len(task.repeats)} that repeat an earlier one"
            except FsdError as error:  # a file that differs from the published one
                availability = str(error)
        rows.append((task.name, task.title, availability))
    output.print_table(("Name", "Title", "Prompts"), rows, figures=False)


def list_runs(
    search: Annotated[str, typer.Option(help="Words of a setting, a task, a name, a note or a tag.")] = "",
    limit: Annotated[int, options.number("--limit", int, "Runs, the newest first; 1 to 1000.", 1, 1000)] = 30,
    archived: Annotated[bool, typer.Option("--archived", help="With archived runs.")] = False,
    json: options.Json = False,
) -> None:
    """List runs with the ids that other commands take."""
    from fsd_core.config.model_names import called
    from fsd_core.worker import local_runs

    repository, home = local_runs.open_repository(get_settings()), get_settings().home
    runs = repository.runs(search=search, limit=limit, archived=None if archived else False)
    runs = local_runs.with_actual_statuses(repository, runs, home)
    if json:
        for run in runs:
            named = {"run": run.id, "experiment": run.experiment_id, "name": run.experiment_name, "pair": run.pair}
            named |= {"note": run.note, "tags": list(run.tags), "archived": run.archived}
            done = {"prompts_done": run.prompts_done, "prompts": run.prompts_total, "begun": run.created_at.isoformat()}
            output.print_json(named | {"label": run.label, "task": run.task, "status": run.status} | done)
        return
    if not runs:
        hidden = " --archived lists archived ones." if not archived and repository.count_runs(archived=True) else ""
        output.say(("No run is here yet." if not search else f"No run has {search[:60]!r} in its name.") + hidden)
        return
    rows = [
        (
            run.id[:_ID_LENGTH], run.label, called(run.pair), run.task,
            f"{run.prompts_done:,} of {run.prompts_total:,}", run.status,
            f"{run.created_at:%Y-%m-%d %H:%M}", (run.experiment_id or "–")[:_ID_LENGTH],
        )
        for run in runs
    ]  # fmt: skip
    columns = ("Run", "Setting", "Pair", "Task", "Prompts", "Status", "Begun, UTC", "Experiment")
    output.print_table(columns, rows, figures=False)


def fetch(task: Annotated[str, typer.Argument(help="Task whose files are fetched.")]) -> None:
    """Fetch a task's files from the Hugging Face hub into the data folder."""
    from fsd_core.models.pair_check import size
    from fsd_core.tasks import download, get_task

    source, licence = download.origin(task)
    to_fetch = download.missing_bytes(get_task(task), get_settings().data_folder)
    print(f"{get_task(task).title}, licence {licence}, from {source}" + (f", {size(to_fetch)}" if to_fetch else ""))
    written = download.fetch(
        task, get_settings().data_folder,
        lambda what, done, total: output.say(f"Fetching {what}: file {done + 1} of {total}."),
    )  # fmt: skip
    print("\n".join(map(str, written)) if written else f"All files of {task} are there already.")
