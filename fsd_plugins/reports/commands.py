"""The group of commands ``reports``, to which the actions add theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsd_core.cli import common
from fsd_core.errors import Unwritable
from fsd_core.settings import get_settings
from fsd_core.worker import run_actions


def export_report(
    id: Annotated[str, typer.Argument(help="Id of a report, as `reports list` shows it.")],
    out: Annotated[Path, typer.Argument(metavar="FILE", help="HTML file to write, which must not exist.")],
) -> None:
    """Write a report as one HTML file, which opens without a network."""
    from fsd_core.library.text_decoder import need

    for package in ("plotly", "jinja2", "markdown_it"):
        need(package, "Exporting a report")
    from fsd_plugins.reports.frozen import report_html

    repository = run_actions.open_repository(get_settings())
    text = report_html(repository, repository.report(id.lower()))
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Unwritable(f"{out} exists already: name a new file.") from None
    except OSError as error:
        raise Unwritable(f"{out} cannot be written ({error.strerror}): check the folder and its disk.") from error
    print(out)


def add_to(app: typer.Typer) -> None:
    """Add the group to the command line."""
    reports = typer.Typer(help="Reports that were saved on the pages.", **common.TYPER_OPTIONS)
    reports.command("export")(export_report)
    app.add_typer(reports, name="reports")
