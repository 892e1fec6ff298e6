"""Commands for reports: ``reports list`` and ``reports export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fsd_core.cli import output
from fsd_core.cli import shared_options as options
from fsd_core.errors import Unwritable
from fsd_core.settings import get_settings
from fsd_core.worker import local_runs

_OPTIONS: dict[str, Any] = options.TYPER_OPTIONS
reports = typer.Typer(help="Reports that were saved on the pages.", **_OPTIONS)


@reports.command("list")
def list_reports(
    limit: Annotated[int, typer.Option(min=1, help="How many, the newest first.")] = 100,
) -> None:
    """List the reports, newest first."""
    stored = local_runs.open_repository(get_settings()).reports(limit)
    rows = [(one.id, one.title, one.who, f"{one.at:%Y-%m-%d %H:%M}", one.version) for one in stored]
    output.print_table(("Id", "Title", "By", "Saved (UTC)", "Hash"), rows, figures=False)


@reports.command("export")
def export_report(
    id: Annotated[str, typer.Argument(help="Id of a report, as `reports list` shows it.")],
    out: Annotated[Path, typer.Argument(metavar="FILE", help="HTML file to write, which must not exist.")],
) -> None:
    """Write a report as one HTML file, which opens without a network."""
    from fsd_core.library.extras import need

    for package in ("plotly", "jinja2", "markdown_it"):
        need(package, "Exporting a report")
    from fsd_core.reports.report_file import report_html

    repository = local_runs.open_repository(get_settings())
    text = report_html(repository, repository.report(id.lower()))
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Unwritable(f"{out} exists already: name a new file.") from None
    except OSError as error:
        raise Unwritable(f"{out} cannot be written ({error.strerror}): check the folder and its disk.") from error
    print(out)
