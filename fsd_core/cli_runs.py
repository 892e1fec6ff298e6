"""What the commands do with the database, the models and a run."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsd_core.cli_output import progress_bar, say
from fsd_core.config import RunConfig
from fsd_core.errors import DatabaseUnavailable, FsdError, TrackingUnavailable
from fsd_core.settings import Settings

if TYPE_CHECKING:
    from fsd_core.benchmarks.harness import PairLoader
    from fsd_core.models.loading import LoadedPair
    from fsd_core.tracking.database.repository import Repository
    from fsd_core.tracking.records import RunView


def open_repository(settings: Settings) -> Repository:
    """The database, made first where there is none yet. An outdated one is refused, for others may be using it."""
    from fsd_core.tracking.database import session
    from fsd_core.tracking.database.repository import Repository

    url = settings.resolved_database_url
    path = session.sqlite_path(session.parse(url))
    if path is not None and not path.exists():
        session.upgrade(url)
    return Repository(session.open_database(url))


def load_for(configs: Sequence[RunConfig], threads: int | None) -> LoadedPair:
    """The one pair of these runs, with torch set to ``threads`` CPU threads.

    Raises what loading raises, and ``InvalidSetting`` if a configuration is impossible with this pair.
    """
    import torch

    from fsd_core.decoding.decoder import Decoder
    from fsd_core.models.loading import load_pair

    if threads:
        torch.set_num_threads(threads)
    pair = load_pair(configs[0].setting.pair, configs[0].device, configs[0].dtype)
    for config in configs:
        Decoder(pair, config.setting.decoding)
    return pair


def check_names(pair: str, task: str, limit: int) -> None:
    """Raises ``UnknownName`` or ``InvalidSetting``, before anything slow is done or anything is written."""
    from fsd_core.benchmarks.tasks import get_task
    from fsd_core.models.pairs import get_pair

    get_pair(pair)
    get_task(task).examples(limit)


def perform(repository: Repository, run_id: str, loader: PairLoader, settings: Settings) -> RunView:
    """Does a run under a progress bar and mirrors it. An interrupt from the keyboard marks it cancelled."""
    from fsd_core.benchmarks.harness import execute_run

    run = repository.run(run_id)
    with progress_bar(run.label, run.prompts_total) as advance_to:
        try:
            execute_run(repository, run_id, loader, lambda view: advance_to(view.prompts_done))
        except KeyboardInterrupt:
            repository.cancel_run(run_id)
            say(f"Run {run_id} is cancelled; what was done is kept.")
            raise
        advance_to(run.prompts_total)
    mirror(repository, run_id, settings)
    return repository.run(run_id)


def perform_all(repository: Repository, experiment_id: str, loader: PairLoader, settings: Settings) -> list[RunView]:
    """Does the runs of an experiment in order. One that fails is told of and does not stop the others.

    An interrupt from the keyboard marks all that is left cancelled. Raises ``FsdError`` if no run finished.
    """
    ids = [run.id for run in repository.experiment(experiment_id).runs]
    for i, run_id in enumerate(ids):
        try:
            perform(repository, run_id, loader, settings)
        except KeyboardInterrupt:
            for left in ids[i + 1 :]:
                repository.cancel_run(left)
            raise
        except DatabaseUnavailable:
            raise
        except FsdError as error:
            say(f"error: {error}")
    done = [repository.run(run_id) for run_id in ids]
    if not any(run.status == "finished" for run in done):
        raise FsdError(f"No run of the experiment {experiment_id} could be finished.")
    return done


def mirror(repository: Repository, run_id: str, settings: Settings) -> None:
    """Copies a run to MLflow; if that is down the run stays whole, and is mirrored by the worker later."""
    from fsd_core.tracking.mlflow_mirror import MlflowMirror

    # How it makes its tables is not for standard error. It reads the variable when it is imported, which is later.
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    try:
        MlflowMirror(settings.resolved_mlflow_uri).sync(repository, run_id)
    except TrackingUnavailable as error:
        say(f"warning: {error}")
