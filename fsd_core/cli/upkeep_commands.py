"""Commands that maintain the program itself: ``db``, ``export`` and ``import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsd_core.cli import common
from fsd_core.cli.output import find_work
from fsd_core.errors import NotApplicable
from fsd_core.settings import get_settings
from fsd_core.texts import count
from fsd_core.worker import run_actions

database = typer.Typer(help="Maintain the database.", **common.TYPER_OPTIONS)


@database.command("upgrade")
def upgrade_database() -> None:
    """Create the database, or upgrade it to this version."""
    url = get_settings().resolved_database_url
    from fsd_core.storage.opening import open_database, upgrade
    from fsd_core.storage.repository import Repository

    upgrade(url)
    print("The database is up to date.", *Repository(open_database(url)).shared_names(), sep="\n")


@database.command("backup")
def backup_database(
    file: Annotated[Path, typer.Argument(help="A new file.")],
) -> None:
    """Write a checked copy of the database, which may stay in use meanwhile."""
    from fsd_core.storage.upkeep import backup

    size = backup(get_settings().resolved_database_url, file)
    print(f"{file.absolute()} is a checked copy of the database: {size / 1e6:,.1f} MB.")


@database.command("restore")
def restore_database(
    file: Annotated[Path, typer.Argument(help="A backup.")],
) -> None:
    """Replace the database with a backup. Stop the application first. The former database is kept."""
    from fsd_core.storage.upkeep import restore

    settings = get_settings()
    settings.make_folders()
    with run_actions.exclusive_home(settings.home):
        former = restore(settings.resolved_database_url, file)
    print(f"The database was restored from {file}." + (f" The former one is {former}." if former else ""))


@database.command("vacuum")
def vacuum_database() -> None:
    """Return the space of deleted rows to the disk."""
    from fsd_core.storage.upkeep import vacuum

    before, after = vacuum(get_settings().resolved_database_url)
    print(f"The database takes {after / 1e6:,.1f} MB, {(before - after) / 1e6:,.1f} MB less than before.")


def export_workspace(
    file: Annotated[Path, typer.Argument(help="A new file.")],
    experiment: Annotated[
        list[str] | None, typer.Option(help="Id of an experiment; may be given several times. [default: everything]")
    ] = None,
    run: Annotated[list[str] | None, typer.Option(help="Id of a run; may be given several times.")] = None,
) -> None:
    """Write settings, tasks of your own, experiments, runs, texts, traces and reviews to one checked file. Accounts are
    left out."""
    from fsd_core.storage.workspace_export import export

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
    from fsd_core.storage.workspace_import import import_file

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
