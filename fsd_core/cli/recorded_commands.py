"""Commands on work that is recorded: go on with it, delete it, score it again, bound its acceptance."""

from __future__ import annotations

from typing import Annotated

import typer

from fsd_core.cli import calibrate_command, output, run_commands
from fsd_core.cli import shared_options as options
from fsd_core.cli.find import check_resumable, find_work
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.settings import get_settings
from fsd_core.worker import local_runs


def resume(id: options.Id, json: options.Json = False) -> None:
    """Continue a run or an experiment that was killed, failed or was cancelled, at its next prompt. Failed prompts are
    tried again."""
    settings = get_settings()
    repository = local_runs.open_repository(settings)
    work = find_work(repository, id)
    config = repository.experiment(work.id).config if work.is_experiment else None
    if isinstance(config, CalibrationConfig) and not work.owned_by_worker:
        if remaining := [run.id for run in work.runs if run.has_more_to_do]:
            repository.reopen_runs(remaining, enqueue=False)
        loader = run_commands.loader_for(config.round_runs([config.target, *config.decodings], 0, 1), settings.threads)
        calibrate_command.perform(repository, settings, work.id, loader, json)
        return
    check_resumable(work)
    if work.owned_by_worker:
        repository.reopen_runs([run.id for run in work.runs])
        output.tell_resumed(work.id, work.is_experiment, json)
        output.tell_worker(repository)
        return
    with local_runs.exclusive_writing(repository, settings.home, *work.lock) as writing:
        loader = run_commands.loader_for([run.config for run in work.runs], settings.threads)
        ids = repository.reopen_runs([run.id for run in work.runs], enqueue=False)
        finished = run_commands.perform(repository, work.title, ids, loader, settings, writing)
    if work.is_experiment:
        output.tell_experiment(work.id, finished, json)
    else:
        output.tell_run(finished[0], json)


def delete(
    id: options.Id,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a run, or an experiment with all its runs, here and in MLflow. This cannot be undone."""
    settings = get_settings()
    repository = local_runs.open_repository(settings)
    work = find_work(repository, id)
    kind = "experiment" if work.is_experiment else "run"
    from fsd_core.review.resting import resting_on

    resting = resting_on(repository, (run.id for run in work.runs))
    question = f"Delete the {output.deletion(repository, kind, work.id)}?"
    output.confirm(" ".join(filter(None, (question, resting, "This cannot be undone."))), yes)

    from fsd_core.worker import run_actions

    run_actions.delete(repository, settings.home, kind, work.id)
    run_commands.delete_copies(repository, settings)
    print(" ".join(filter(None, (f"The {kind} {work.id} was deleted.", resting))))


def rescore(id: options.Id, json: options.Json = False) -> None:
    """Score the texts of an ended run, or of all runs of an experiment, again. Nothing is generated."""
    settings = get_settings()
    repository = local_runs.open_repository(settings)
    work = find_work(repository, id)

    from fsd_core.evaluation.rescoring import rescore as rescore_run

    changed = {run.id: rescore_run(repository, run.id) for run in work.runs}
    run_commands.mirror(repository, [id for id, count in changed.items() if count], settings)
    output.tell_rescored(changed, json)


def bounds(
    id: options.Id,
    temperature: Annotated[
        float | None, options.number("--temperature", float, "Temperature of p and q. [default: the run's, or 1]")
    ] = None,
    positions: Annotated[
        int, options.number("--positions", int, "Positions to sample from its texts, 2 to 10,000.", 2, 10_000)
    ] = 48,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Compute how often several drafts could have been accepted in ended runs, by every verifier and at best."""
    settings = get_settings()
    repository = local_runs.open_repository(settings)
    work = find_work(repository, id)

    from fsd_core.evaluation import bounds as measuring

    for run in work.runs:
        measuring.check(repository, run.id)
    loaded = run_commands.load_for([run.config for run in work.runs], settings.threads)
    measured = {
        run.id: measuring.measure(repository, run.id, loaded, temperature, positions, seed) for run in work.runs
    }
    run_commands.mirror(repository, list(measured), settings)
    output.tell_bounds(measured, json)
