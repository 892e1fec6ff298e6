"""The command ``import-results``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsd_core.cli import common, output
from fsd_core.errors import NotGiven
from fsd_core.settings import get_settings
from fsd_core.worker import run_actions


def import_results(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE...", help="Result files of other tools.")] = None,
    mlflow_run: Annotated[
        str, typer.Option("--mlflow-run", metavar="URL", help="Address of a run on a MLflow server.")
    ] = "",
    prompts: Annotated[
        int | None,
        common.number_option(
            "--prompts", int, "With --mlflow-run: prompts measured, if its metrics do not say.", 1, 10**9
        ),
    ] = None,
    task: Annotated[str, typer.Option(metavar="NAME", help="Task, in place of what a file says.")] = "",
    model: Annotated[str, typer.Option(metavar="NAME", help="Model, in place of what a file says.")] = "",
    family: Annotated[str, typer.Option(metavar="NAME", help="Series, in place of what a file says.")] = "",
    json: common.Json = False,
) -> None:
    """Add what vllm bench serve, guidellm, lm-eval, SpecForge, llama-bench or llama-batched-bench measured, or a run of
    MLflow, as runs marked as imported. A file that is imported again adds nothing."""
    from fsd_plugins.results.reading import added_text, fetch_mlflow_run, read_result_path
    from fsd_plugins.results.reading import import_results as store

    if not files and not mlflow_run:
        raise NotGiven("Nothing is to be imported: give result files, or --mlflow-run.")
    read = [read_result_path(path) for path in files or ()]
    if mlflow_run:
        read.append(fetch_mlflow_run(mlflow_run, prompts))
    settings = get_settings()
    repository = run_actions.open_repository(settings)
    stored = store(repository, read, task=task, model=model, family=family)
    new = [run.id for run in stored if run.is_new]
    common.mirror(repository, new, settings)
    if json:
        output.print_json({"runs": [output.run_json(repository.run(run.id)) for run in stored], "added": len(new)})
        return
    output.print_runs([repository.run(run.id) for run in stored])
    print(added_text(stored))


def add_to(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("import-results")(import_results)
