"""Steps that commands share: read the options, load pairs, find tasks, perform runs and mirror them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fsd_core.cli import shared_options as options
from fsd_core.cli.bars import download_bar, progress_bar
from fsd_core.cli.output import say
from fsd_core.config import DecodingConfig, RunConfig, SettingConfig
from fsd_core.config.building import checked, method
from fsd_core.config.options import METHOD_OPTIONS
from fsd_core.errors import DatabaseUnavailable, FsdError, OutOfRange, TrackingUnavailable
from fsd_core.settings import HIGHEST_PRICE, Settings

if TYPE_CHECKING:
    from fsd_core.cli.find import StoredWork
    from fsd_core.evaluation.generator import PairLoader
    from fsd_core.evaluation.observer import Writing
    from fsd_core.models.loading import LoadedPair
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunView
    from fsd_core.tasks import Task
    from fsd_core.tracking.mlflow_mirror import MlflowMirror


def config_of(option_values: dict[str, Any], settings: Settings) -> RunConfig:
    """Build the run config from the options. Raises ``InvalidSetting``."""
    return config_with(method(options.only(option_values, METHOD_OPTIONS), options.flag), option_values, settings)


def config_with(decoding: DecodingConfig, option_values: dict[str, Any], settings: Settings) -> RunConfig:
    """Build the run config of a decoding from the other options. Raises ``InvalidSetting``."""
    setting = SettingConfig(**options.only(option_values, ["pair"]), decoding=decoding)
    given = {"device": settings.device} | options.run_of(option_values)
    return checked(RunConfig, options.flag, setting=setting, **given)


def load_for(configs: Sequence[RunConfig], number: int | None) -> LoadedPair:
    """Load the pair of these runs and set torch to ``number`` CPU threads; ``None`` picks the number that suits it.

    Raises what loading raises, and ``InvalidSetting`` if a configuration is impossible with this pair.
    """
    from fsd_core.decoding.decoder import PairDecoder
    from fsd_core.models import threads
    from fsd_core.models.loading import load_pair

    check_drafters(configs)
    threads.fix(number)
    with download_bar() as on_progress:
        pair = load_pair(configs[0].setting.pair, configs[0].device, configs[0].dtype, on_progress)
    for config in configs:
        PairDecoder(pair, config.setting.decoding)
    threads.adopt(pair)
    return pair


def loader_for(configs: Sequence[RunConfig], number: int | None) -> PairLoader:
    """Return a loader for these runs, with their pair loaded if one of them needs it. Raises as :func:`load_for`."""
    written = [config for config in configs if not config.setting.decoding.acceptance.by_endpoint]
    if not written:
        from fsd_core.models.loading import load_pair

        return load_pair
    loaded = load_for(written, number)
    return lambda *_: loaded


def at_price(settings: Settings, price_per_hour: float | None) -> Settings:
    """Return the settings with the price of this machine that a command names, if it names one. Raises
    ``InvalidSetting`` for a price out of range."""
    if price_per_hour is None:
        return settings
    if not 0 < price_per_hour <= HIGHEST_PRICE:
        raise OutOfRange(f"--price-per-hour is {price_per_hour:g}: expected more than 0, up to {HIGHEST_PRICE:,}.")
    return settings.model_copy(update={"price_per_hour": price_per_hour})


def check_drafters(configs: Sequence[RunConfig]) -> None:
    """Raise ``InvalidSetting`` if a configuration uses a drafter that its pair lacks."""
    from fsd_core.models.model_pairs import check_drafter

    for config in configs:
        check_drafter(config.setting.pair, config.setting.decoding)


def check_names(pair: str, task: str, limit: int, settings: Settings, *, is_given: bool) -> dict[str, Any]:
    """Return the full name of the task, which includes the version of a custom one, and the limit. A limit that nobody
    has given is no more than the task has.

    Raises ``UnknownName`` or ``InvalidSetting`` before anything slow is done or any run is stored.
    """
    from fsd_core.models.model_pairs import get_pair

    get_pair(pair)
    match = find_task(task, settings)
    limit = limit if is_given else min(limit, max(match.size, 1))
    match.check_limit(limit)
    return {"task": match.name, "limit": limit}


def find_task(name: str, settings: Settings) -> Task:
    """Return the task of that name. A custom task is first updated from the folder of tasks."""
    from fsd_core.tasks import TASKS, get_task
    from fsd_core.tasks.custom import lookup
    from fsd_core.worker import local_runs

    if name in TASKS or not (local_runs.has_database(settings) or settings.tasks_folder.is_dir()):
        return get_task(name)
    repository = local_runs.open_repository(settings)
    for sentence in lookup.TaskFolder(settings.tasks_folder).take_in(repository):
        say(f"warning: {sentence}")
    return lookup.find_task(name, repository)


def going_on(work: StoredWork) -> str:
    """Print that stored work continues and return its id."""
    what, done = ("experiment" if work.is_experiment else "run"), sum(run.prompts_done for run in work.runs)
    say(
        f"Continuing the {what} {work.id}, which has the same settings and stopped at prompt {done} of "
        f"{sum(run.prompts_total for run in work.runs)}. --fresh starts a new one."
    )
    return work.id


def perform(
    repository: Repository,
    title: str,
    run_ids: Sequence[str],
    loader: PairLoader,
    settings: Settings,
    writing: Writing,
) -> list[RunView]:
    """Execute runs under a progress bar, mirror them and print their errors.

    An interrupt from the keyboard leaves the runs to be resumed. Raises ``FsdError`` if no run finished, and
    ``DatabaseUnavailable``, which says how to continue, if the runs could not be ended.
    """
    from fsd_core.evaluation.observer import RunObserver
    from fsd_core.evaluation.runner import execute_runs
    from fsd_core.models import threads

    def before_a_prompt(_: RunView) -> None:
        threads.fit()
        advance_to(done())

    def done() -> int:
        return sum(run.prompts_done for run in repository.runs(run_ids, limit=None))

    initial = [repository.run(run_id) for run_id in run_ids]
    command = f"`python -m fsd_core resume {initial[0].id if len(initial) == 1 else initial[0].experiment_id}`"
    if sys.stderr.isatty():
        say(f"If this is killed, continue with {command}.")
    with progress_bar(title, sum(run.prompts_total for run in initial)) as advance_to:
        with telling_how_to_go_on(command):
            price = settings.price_per_hour
            provenance = {} if price is None else {"price_per_hour": price}
            execute_runs(repository, run_ids, loader, RunObserver(before_a_prompt, writing, provenance=provenance))
        advance_to(done())
    mirror(repository, run_ids, settings)
    ended = [repository.run(run_id) for run_id in run_ids]
    errors = dict.fromkeys(run.error for run in ended if run.error)
    if not any(run.status == "finished" for run in ended):
        raise FsdError(" ".join(errors) or "No run was finished.")
    for error in errors:
        say(f"error: {error}")
    return ended


@contextmanager
def telling_how_to_go_on(again: str) -> Iterator[None]:
    """Add to an interruption of the block that finished prompts are kept. ``again`` is the command that continues."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"Interrupted. Finished prompts are kept: continue with {again}.")
        raise
    except DatabaseUnavailable as error:
        raise DatabaseUnavailable(f"{error} Finished prompts are kept: continue later with {again}.") from error


def mirror(repository: Repository, run_ids: Sequence[str], settings: Settings) -> None:
    """Copy runs to MLflow. If MLflow is down, the runs are unaffected and the worker mirrors them later."""
    with _mirrored(settings) as copies:
        for run_id in run_ids:
            copies.sync(repository, run_id)


def delete_copies(repository: Repository, settings: Settings) -> None:
    """Delete from MLflow what was deleted here. If MLflow is down, the worker does it later."""
    with _mirrored(settings) as copies:
        copies.delete_pending(repository)


@contextmanager
def _mirrored(settings: Settings) -> Iterator[MlflowMirror]:
    from fsd_core.tracking.mlflow_mirror import MlflowMirror

    # Keep its table migrations off standard error. MLflow reads the variable at import, which comes later.
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    try:
        yield MlflowMirror(settings.resolved_mlflow_uri)
    except TrackingUnavailable as error:
        say(f"warning: {error}")
