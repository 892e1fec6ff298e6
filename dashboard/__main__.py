"""``python -m dashboard EXPERIMENT … --out FOLDER``: comparisons as files, as the Compare page exports them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from dashboard.compare.compared_runs import compare
from dashboard.compare.export import csv_text, latex, markdown, matched_csv
from fsd_core.cli.output import find_work
from fsd_core.errors import FsdError, UnknownName
from fsd_core.plots.printed import printed
from fsd_core.plots.trade_offs import FIGURE_NAMES, named_figure
from fsd_core.settings import get_settings
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository


def export(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Runs or experiments, by the beginning of an id.")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("results"),
    margin: Annotated[
        float | None,
        typer.Option(
            help="Points of accuracy that may be lost, 0 to 20, for the verdict. [default: a calibration's, or 2]"
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Run that the others are compared with. [default: the target alone]")
    ] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="Write the tables as LaTeX and the figures as PDF, too.")
    ] = False,
    by: Annotated[list[str] | None, typer.Option(help="The command that made it; several times for several.")] = None,
) -> None:
    """Write comparisons as Markdown and CSV, one for each named experiment or run.

    The names of the files go to the output, and what each comparison comes to, to the errors' output.
    """
    repository = Repository(open_database(get_settings().resolved_database_url))
    out.mkdir(parents=True, exist_ok=True)
    for id in ids:
        work = find_work(repository, id.lower())
        runs = [run.id for run in work.runs]
        comparison = compare(
            repository, runs, _baseline(work.title, runs, baseline), "usual" if margin is None else margin
        )
        name = re.sub(r"[^a-z0-9]+", "-", work.title.lower()).strip("-")[:60] or work.id
        (out / f"{name}.md").write_text(markdown(comparison, work.title, by or ()), encoding="utf-8")
        (out / f"{name}.csv").write_text(csv_text(comparison), encoding="utf-8", newline="")
        (out / f"{name}.matched.csv").write_text(matched_csv(comparison), encoding="utf-8", newline="")
        if paper:
            (out / f"{name}.tex").write_text(latex(comparison), encoding="ascii")
            for figure_name in FIGURE_NAMES if comparison.rows else ():
                drawn = named_figure(
                    figure_name, comparison.runs, comparison.baseline, comparison.prompts, marked=comparison.best
                )
                if drawn.data:  # otherwise these runs have nothing that it shows
                    (out / f"{name}.{figure_name}.pdf").write_bytes(printed(drawn, "pdf"))
        print(out / f"{name}.md")
        if comparison.recommendation:
            print(comparison.recommendation.sentence, file=sys.stderr)


def _baseline(title: str, runs: list[str], prefix: str | None) -> str | None:
    if prefix is None:
        return None
    matches = [run for run in runs if run.startswith(prefix.lower())]
    if len(matches) != 1:
        raise UnknownName(
            f"The baseline '{prefix}' is the beginning of {len(matches) or 'no'} runs of {title}: expected one of "
            f"{', '.join(run[:8] for run in runs)}."
        )
    return matches[0]


if __name__ == "__main__":
    try:
        typer.run(export)
    except FsdError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
