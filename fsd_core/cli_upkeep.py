"""Commands that look after the program itself: ``train`` and ``db``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsd_core import cli_options as options
from fsd_core import cli_output as output
from fsd_core.settings import get_settings

train = typer.Typer(help="Make what ships with the program.", **options.PLAIN)
database = typer.Typer(help="Look after the database.", **options.PLAIN)


@train.command("bundled-pair")
def train_bundled_pair(
    out: Annotated[Path, typer.Option(help="Folder to write target/ and draft/ to.")] = Path("bundled-pair"),
    seed: options.Seed = 0,
) -> None:
    """Train the bundled pair from random weights; a line of JSON tells of each stretch of steps."""
    from fsd_core.training.bundled_pair import main as train_pair

    train_pair(out, seed, lambda role, row: output.print_json({"role": role, **row}))


@train.command("held-out")
def write_held_out() -> None:
    """Write the held-out arithmetic problems that ship with the program; always the same."""
    from fsd_core.benchmarks.tasks import HELD_OUT, write_held_out

    print(f"{write_held_out()} problems in {HELD_OUT}")


@database.command("upgrade")
def upgrade_database() -> None:
    """Create the database, or bring it to this version."""
    url = get_settings().resolved_database_url
    from fsd_core.tracking.database.session import upgrade

    upgrade(url)
    print("The database is up to date.")
