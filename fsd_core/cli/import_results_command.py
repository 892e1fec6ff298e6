"""The command ``import-results``: what other tools measured, beside runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsd_core.cli import output, run_commands
from fsd_core.cli import shared_options as options
from fsd_core.errors import NotGiven
from fsd_core.settings import get_settings
from fsd_core.worker import local_runs


def import_results(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE...", help="Result files of other tools.")] = None,
    mlflow_run: Annotated[
        str, typer.Option("--mlflow-run", metavar="URL", help="Address of a run on a MLflow server.")
    ] = "",
    prompts: Annotated[
        int | None,
        options.number("--prompts", int, "With --mlflow-run: prompts measured, if its metrics do not say.", 1, 10**9),
    ] = None,
    task: Annotated[str, typer.Option(metavar="NAME", help="Task, in place of what a file says.")] = "",
    model: Annotated[str, typer.Option(metavar="NAME", help="Model, in place of what a file says.")] = "",
    family: Annotated[str, typer.Option(metavar="NAME", help="Series, in place of what a file says.")] = "",
    json: options.Json = False,
) -> None:
    """Add what vllm bench serve, guidellm, lm-eval, SpecForge, llama-bench or llama-batched-bench measured, or a run of
    MLflow, as runs marked as imported. A file that is imported again adds nothing."""
    from fsd_core.evaluation.result_files.mlflow_run import fetch_mlflow_run
    from fsd_core.evaluation.result_files.result_import import added_text
    from fsd_core.evaluation.result_files.result_import import import_results as store
    from fsd_core.evaluation.result_files.result_reading import read_result_path

    if not files and not mlflow_run:
        raise NotGiven("Nothing is to be imported: give result files, or --mlflow-run.")
    read = [read_result_path(path) for path in files or ()]
    if mlflow_run:
        read.append(fetch_mlflow_run(mlflow_run, prompts))
    settings = get_settings()
    repository = local_runs.open_repository(settings)
    stored = store(repository, read, task=task, model=model, family=family)
    new = [run.id for run in stored if run.is_new]
    run_commands.mirror(repository, new, settings)
    if json:
        output.print_json({"runs": [output.run_json(repository.run(run.id)) for run in stored], "added": len(new)})
        return
    output.print_runs([repository.run(run.id) for run in stored])
    print(added_text(stored))
