"""``run`` and ``sweep``: measure one setting, or several on the same prompts, on a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from fsd_core.cli import output, run_commands
from fsd_core.cli import shared_options as options
from fsd_core.cli.engine_commands import (
    EndpointName,
    EndpointNames,
    Loads,
    Rates,
    read_parallel,
    read_request_rates,
    served_decoding,
    shared_of,
)
from fsd_core.cli.find import find_unfinished
from fsd_core.config import DecodingConfig, SweepConfig
from fsd_core.config.baselines import with_baselines
from fsd_core.config.building import checked
from fsd_core.config.options import METHOD_OPTIONS
from fsd_core.config.run_config import IN_FLIGHT
from fsd_core.config.sweeps import experiment_name, methods
from fsd_core.errors import NotApplicable
from fsd_core.settings import Settings, get_settings
from fsd_core.worker import local_runs
from fsd_core.worker.pair_names import identified


@options.taking(("pair", *METHOD_OPTIONS, "seed", "dtype", "device", "task", "limit", "batch"))
def run(
    endpoint: EndpointName = None,
    parallel: Loads = None,
    request_rate: Rates = None,
    price_per_hour: options.PricePerHour = None,
    fresh: options.Fresh = False,
    json: options.Json = False,
    **option_values: Any,
) -> None:
    """Measure one setting, or a running engine, on a task and store the run. Repeat the command to continue a run that
    was killed."""
    settings = run_commands.at_price(get_settings(), price_per_hour)
    loads, rates = read_parallel(parallel), read_request_rates(request_rate)
    if endpoint is None and parallel is not None:
        raise NotApplicable("--parallel is of an endpoint: name one with --endpoint, or give --batch.")
    if endpoint is None and rates:
        raise NotApplicable("--request-rate is of an endpoint: name one with --endpoint.")
    if endpoint is not None:
        served = served_decoding(local_runs.open_repository(settings), endpoint, shared_of(option_values))
        if rates:
            loads = loads or [option_values.get("batch") or IN_FLIGHT]
            option_values = option_values | {"batch": loads[0]}
        if len(loads) > 1 or rates:
            _sweep(
                [served], settings, option_values, [option_values.get("seed") or 0],
                lambda task: f"{served.label} on {task}, by load", batches=loads if len(loads) > 1 else (),
                rates=rates, fresh=fresh, json=json,
            )  # fmt: skip
            return
        option_values = option_values | ({"batch": loads[0]} if loads else {})
        config = run_commands.config_with(served, option_values, settings)
    else:
        config = run_commands.config_of(option_values, settings)
    is_given = option_values.get("limit") is not None
    prompts = run_commands.check_names(config.setting.pair, config.task, config.limit, settings, is_given=is_given)
    config = config.model_copy(update=prompts)
    run_commands.check_drafters([config])
    repository = local_runs.open_repository(settings)
    # Load before the run is stored: a pair that cannot be loaded leaves no run behind.
    loader = run_commands.loader_for([config], settings.threads)
    config = identified(repository, config)
    unfinished = None if fresh else find_unfinished(repository, settings.home, config)
    id = run_commands.going_on(unfinished) if unfinished else repository.create_run(config)
    with local_runs.exclusive_writing(repository, settings.home, "run", id) as writing:
        label = config.setting.decoding.label
        (finished,) = run_commands.perform(repository, label, [id], loader, settings, writing)
    output.tell_run(finished, json)


@options.taking(("pair", *METHOD_OPTIONS, "task", "limit", "dtype", "device", "batch"), swept=True)
def sweep(
    seed: Annotated[
        list[int] | None, options.number("--seed", int, "Seed; may be given several times. [default: 0]")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the experiment.")] = None,
    baselines: Annotated[bool, typer.Option(help="Measure the target alone and exact SD too.")] = True,
    all_baselines: Annotated[
        bool, typer.Option("--all-baselines", help="Measure block and the draft alone too, as matched comparisons do.")
    ] = False,
    endpoint: EndpointNames = None,
    parallel: Loads = None,
    enqueue: Annotated[bool, typer.Option("--enqueue", help="Queue the work for the worker and return.")] = False,
    price_per_hour: options.PricePerHour = None,
    fresh: options.Fresh = False,
    json: options.Json = False,
    **option_values: Any,
) -> None:
    """Measure several thresholds, rules, drafters and topologies on the same prompts, as one experiment. An option
    applies to the settings that read it. Repeat the command to continue an experiment that was killed."""
    if enqueue and price_per_hour is not None:
        raise NotApplicable("The price is that of the worker's machine: set FSD_PRICE_PER_HOUR where the worker runs.")
    settings = run_commands.at_price(get_settings(), price_per_hour)
    contenders = methods(options.unswept(option_values), options.swept_flag)
    decodings = with_baselines(contenders, everything=all_baselines) if baselines else contenders
    if endpoint:
        repository = local_runs.open_repository(settings)
        shared = contenders[0].shared
        decodings = [*decodings, *(served_decoding(repository, known, shared) for known in endpoint)]
    loads = read_parallel(parallel)
    option_values = option_values | ({"batch": loads[0]} if len(loads) == 1 else {})
    _sweep(
        decodings, settings, option_values, seed or [0], lambda task: name or experiment_name(contenders, task),
        batches=loads if len(loads) > 1 else (), enqueue=enqueue, fresh=fresh, json=json,
    )  # fmt: skip


def _sweep(
    decodings: Sequence[DecodingConfig],
    settings: Settings,
    option_values: dict[str, Any],
    seeds: Sequence[int],
    named: Callable[[str], str],
    *,
    batches: Sequence[int] = (),
    rates: Sequence[float] = (),
    enqueue: bool = False,
    fresh: bool = False,
    json: bool = False,
) -> None:
    """Measure settings on the same prompts, as one experiment. ``named`` returns its name, given the task's."""
    given = {"device": settings.device} | options.only(option_values, ["pair"]) | options.run_of(option_values)
    config = checked(
        SweepConfig, options.flag, seeds=tuple(seeds), decodings=tuple(decodings), batches=tuple(batches),
        rates=tuple(rates), **given,
    )  # fmt: skip
    is_given = option_values.get("limit") is not None
    prompts = run_commands.check_names(config.pair, config.task, config.limit, settings, is_given=is_given)
    config = config.model_copy(update={"name": named(config.task)} | prompts)
    run_commands.check_drafters(config.runs())
    repository = local_runs.open_repository(settings)
    config = identified(repository, config)
    if enqueue:
        output.tell_experiment(repository.create_experiment(config), [], json)
        output.tell_worker(repository)
        return
    loader = run_commands.loader_for(config.runs(), settings.threads)
    unfinished = None if fresh else find_unfinished(repository, settings.home, config)
    id = run_commands.going_on(unfinished) if unfinished else repository.create_experiment(config, enqueue=False)
    with local_runs.exclusive_writing(repository, settings.home, "experiment", id) as writing:
        ids = [run.id for run in repository.experiment(id).runs]
        finished = run_commands.perform(repository, config.name, ids, loader, settings, writing)
    output.tell_experiment(id, finished, json)
