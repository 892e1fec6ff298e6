"""What the commands do with the database, the models and a run."""

from __future__ import annotations

import itertools
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fsd_core.cli.output import download_bar, progress_bar, say
from fsd_core.config import RunConfig
from fsd_core.errors import DatabaseUnavailable, FsdError, TrackingUnavailable
from fsd_core.jobs import lock
from fsd_core.settings import Settings

if TYPE_CHECKING:
    from fsd_core.benchmarks.execution import PairLoader
    from fsd_core.cli.find import Work
    from fsd_core.models.loading import LoadedPair
    from fsd_core.tracking.database.repository import Repository
    from fsd_core.tracking.records import RunView


def open_repository(settings: Settings) -> Repository:
    """The database, made first where there is none yet. An outdated one is refused, for others may be using it."""
    from fsd_core.tracking.database import session
    from fsd_core.tracking.database.repository import Repository

    settings.make_folders()
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

    check_drafters(configs)
    if threads:
        torch.set_num_threads(threads)
    with download_bar() as on_progress:
        pair = load_pair(configs[0].setting.pair, configs[0].device, configs[0].dtype, on_progress)
    for config in configs:
        Decoder(pair, config.setting.decoding)
    return pair


def check_drafters(configs: Sequence[RunConfig]) -> None:
    """Raises ``InvalidSetting`` for a drafter that the pair of a configuration has not."""
    from fsd_core.models.pairs import check_drafter

    for config in configs:
        check_drafter(config.setting.pair, config.setting.decoding)


def check_names(pair: str, task: str, limit: int) -> None:
    """Raises ``UnknownName`` or ``InvalidSetting``, before anything slow is done or anything is written."""
    from fsd_core.benchmarks.tasks import get_task
    from fsd_core.models.pairs import get_pair

    get_pair(pair)
    get_task(task).examples(limit)


@contextmanager
def alone(settings: Settings, what: str, id: str) -> Iterator[None]:
    """Works on a run, or on all runs of an experiment, as the only process of this home.

    Raises ``FsdError``, which names the other one, if there is one.
    """
    path = settings.home / "runs" / f"{id}.lock"
    path.parent.mkdir(exist_ok=True)
    descriptor = lock.acquire(path)
    if descriptor is None:
        pid = (lock.holder(path) or {}).get("pid", "unknown")
        raise FsdError(
            f"The {what} {id} is being worked on by another process ({pid}): wait for its end, or stop it first."
        )
    try:
        lock.sign(descriptor, pid=os.getpid())
        yield
        path.unlink(missing_ok=True)  # all has ended, so whoever waited for this file finds nothing to do
    finally:
        os.close(descriptor)


def going_on(work: Work) -> str:
    """Tells that nothing new is begun, and answers with the id."""
    what, done = ("experiment" if work.is_experiment else "run"), sum(run.prompts_done for run in work.runs)
    say(
        f"Going on with the {what} {work.id}, which was left unfinished at prompt {done} of "
        f"{sum(run.prompts_total for run in work.runs)} with the same settings; --fresh begins a new one."
    )
    return work.id


def perform(
    repository: Repository, title: str, run_ids: Sequence[str], loader: PairLoader, settings: Settings
) -> list[RunView]:
    """Does runs under a progress bar and mirrors them; tells of those that fail.

    An interrupt from the keyboard leaves the runs to be resumed. Raises ``FsdError`` if no run finished, and
    ``DatabaseUnavailable``, which says how to go on, if the runs could not be ended.
    """
    from fsd_core.benchmarks.execution import execute_runs

    before = [repository.run(run_id) for run_id in run_ids]
    prompts = itertools.count(sum(run.prompts_done for run in before))
    again = f"`python -m fsd_core resume {before[0].id if len(before) == 1 else before[0].experiment_id}`"
    if sys.stderr.isatty():
        say(f"Should this be killed, go on with {again}.")
    with progress_bar(title, sum(run.prompts_total for run in before)) as advance_to:
        try:
            execute_runs(repository, run_ids, loader, lambda _: advance_to(next(prompts)))
        except KeyboardInterrupt:
            say(f"Interrupted. What was done is kept: go on with {again}.")
            raise
        except DatabaseUnavailable as error:
            raise DatabaseUnavailable(f"{error} What was done is kept: go on later with {again}.") from error
        advance_to(next(prompts))
    mirror(repository, run_ids, settings)
    done = [repository.run(run_id) for run_id in run_ids]
    errors = dict.fromkeys(run.error for run in done if run.error)
    if not any(run.status == "finished" for run in done):
        raise FsdError(" ".join(errors) or "No run was finished.")
    for error in errors:
        say(f"error: {error}")
    return done


def mirror(repository: Repository, run_ids: Sequence[str], settings: Settings) -> None:
    """Copies runs to MLflow; if that is down they stay whole, and are mirrored by the worker later."""
    from fsd_core.tracking.mlflow_mirror import MlflowMirror

    # How it makes its tables is not for standard error. It reads the variable when it is imported, which is later.
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    try:
        copies = MlflowMirror(settings.resolved_mlflow_uri)
        for run_id in run_ids:
            copies.sync(repository, run_id)
    except TrackingUnavailable as error:
        say(f"warning: {error}")
