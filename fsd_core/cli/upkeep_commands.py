"""The commands ``db``, which maintain the database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsd_core.cli import common
from fsd_core.settings import get_settings
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
