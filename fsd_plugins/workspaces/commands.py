"""The commands ``export`` and ``import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsd_core.cli.output import find_work
from fsd_core.errors import NotApplicable
from fsd_core.settings import get_settings
from fsd_core.texts import count
from fsd_core.worker import run_actions


def export_workspace(
    file: Annotated[Path, typer.Argument(help="A new file.")],
    experiment: Annotated[
        list[str] | None, typer.Option(help="Id of an experiment; may be given several times. [default: everything]")
    ] = None,
    run: Annotated[list[str] | None, typer.Option(help="Id of a run; may be given several times.")] = None,
) -> None:
    """Write settings, tasks of your own, experiments, runs, texts, traces and reviews to one checked file. Accounts are
    left out."""
    from fsd_plugins.workspaces.exporting import export

    settings = get_settings()
    repository = run_actions.open_repository(settings)
    run_ids: dict[str, None] = {}
    for expected, ids in ((True, experiment), (False, run)):
        for id in ids or ():
            work = find_work(repository, id)
            if work.is_experiment is not expected:
                other = "an experiment" if work.is_experiment else "a run"
                flag = "--experiment" if work.is_experiment else "--run"
                raise NotApplicable(f"{id} is {other}: give it as {flag}.")
            run_ids.update(dict.fromkeys(view.id for view in work.runs))
    done = export(settings.resolved_database_url, file, settings.home, run_ids or None)
    rows = done.rows
    tasks = f" {count(rows['tasks'], 'version')} of tasks of your own went along." * bool(rows["tasks"])
    print(
        f"{file.absolute()} holds {count(rows['runs'], 'run')} of {count(rows['experiments'], 'experiment')} with "
        f"{count(rows['generations'], 'prompt')}, and {_log_entries(rows['review_log'])}: "
        f"{done.size / 1e6:,.1f} MB.{tasks}"
    )


def import_workspace(file: Annotated[Path, typer.Argument(help="A file that `export` has made.")]) -> None:
    """Add the content of an exported file to the database. Existing entries stay unchanged."""
    from fsd_core.storage.opening import open_database
    from fsd_plugins.workspaces.importing import import_file

    settings = get_settings()
    run_actions.open_repository(settings)  # creates the database if it is missing
    database = open_database(settings.resolved_database_url)
    done = import_file(database, file, settings.home)
    existing = ""
    if done.existing:
        existing = f" {count(done.existing, 'run')} of it {'was' if done.existing == 1 else 'were'} here already."
    tasks = f" {count(done.tasks, 'version')} of tasks of your own came along." * bool(done.tasks)
    print(
        f"Added {count(done.runs, 'run')} and {count(done.experiments, 'experiment')} with "
        f"{count(done.prompts, 'prompt')}, and {_log_entries(done.events)}.{existing}{tasks}"
    )


def _log_entries(entries: int) -> str:
    return f"{entries:,} {'entry' if entries == 1 else 'entries'} of the review log"


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("export")(export_workspace)
    app.command("import")(import_workspace)
