"""The command line: ``python -m fsd_core``.

Commands import what they need when they run, so help and ``pairs`` answer without waiting for torch.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from fsd_core.cli import (
    annotating,
    calibrate_command,
    catalogue,
    import_results_command,
    moving,
    output,
    recorded_commands,
    replay_commands,
    run_commands,
    timing,
)
from fsd_core.cli import shared_options as options
from fsd_core.cli.account_commands import tokens, users
from fsd_core.cli.engine_commands import (
    EndpointName,
    EndpointNames,
    Loads,
    Rates,
    endpoints,
    read_parallel,
    read_request_rates,
    served_decoding,
    shared_of,
)
from fsd_core.cli.find import find_unfinished
from fsd_core.cli.notify_commands import notices
from fsd_core.cli.pair_commands import pairs as model_pairs
from fsd_core.cli.report_commands import reports
from fsd_core.cli.review_commands import reviews
from fsd_core.cli.task_commands import task as own_tasks
from fsd_core.cli.upkeep_commands import database, train
from fsd_core.config import DecodingConfig, RunConfig, SettingConfig, SweepConfig
from fsd_core.config.baselines import with_baselines
from fsd_core.config.building import checked, method
from fsd_core.config.options import METHOD_OPTIONS
from fsd_core.config.run_config import IN_FLIGHT
from fsd_core.config.sweeps import experiment_name, methods
from fsd_core.errors import FsdError, InvalidSetting
from fsd_core.garbage import no_garbage_collection
from fsd_core.settings import Settings, get_settings
from fsd_core.signals import signals_as_interrupt
from fsd_core.worker import local_runs

app = typer.Typer(
    help="Choose how far a language model may be sped up, and see what it costs.", **options.TYPER_OPTIONS
)
app.add_typer(train, name="train")
app.add_typer(database, name="db")
app.add_typer(users, name="users")
app.add_typer(tokens, name="tokens")
app.add_typer(own_tasks, name="task")
app.add_typer(model_pairs, name="pairs")
app.add_typer(endpoints, name="endpoints")
app.add_typer(reports, name="reports")
app.add_typer(reviews, name="review")
app.add_typer(notices, name="notify")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with 0 when done, 2 after a refusal or failure (one sentence on standard error), 130 when
    interrupted, 143 after SIGTERM, or 129 after SIGHUP."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # of a terminal that lacks a character, such as one in ASCII
    with signals_as_interrupt(), among_others() as leads:
        try:
            if leads:
                app(arguments)
        except FsdError as error:
            output.say(f"error: {error}")
            sys.exit(2)
        except OSError as error:
            if error.filename is None:  # no file is at fault
                raise
            output.say(f"error: {str(error.filename)!r} cannot be used ({error.strerror}): choose another place.")
            sys.exit(2)


@contextmanager
def among_others() -> Iterator[bool]:
    """Under torchrun, meet the other processes for the block, or follow the first one. Yield whether to do the work."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield True
        return
    from fsd_core.models import split_target

    if os.environ.get("RANK") != "0":
        split_target.follow()
        yield False
        return
    split_target.begin()
    try:
        yield True
    finally:
        split_target.end()


_TEXT_OPTIONS = ("pair", *METHOD_OPTIONS, "seed", "dtype", "device")


@app.command()
@options.taking(_TEXT_OPTIONS)
def generate(
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    json: options.Json = False,
    **option_values: Any,
) -> None:
    """Write the continuation of one prompt."""
    settings, text = get_settings(), options.read_prompt(prompt)
    config = _run(option_values, settings)
    decoding = config.setting.decoding
    loaded = run_commands.load_for([config], settings.threads)

    from fsd_core.decoding.decoder import PairDecoder
    from fsd_core.evaluation.harness import written

    decoder = PairDecoder(loaded, decoding)
    generation = decoder.generate(decoder.prompt_ids(text), config.seed)
    continuation = written(loaded, generation.tokens)
    if json:
        output.print_json(output.generation_json(continuation, generation, decoder, config.seed))
    else:
        print(continuation)


def _run(option_values: dict[str, Any], settings: Settings) -> RunConfig:
    """Build the run config from the options. Raises ``InvalidSetting``."""
    return _run_of(method(options.only(option_values, METHOD_OPTIONS), options.flag), option_values, settings)


def _run_of(decoding: DecodingConfig, option_values: dict[str, Any], settings: Settings) -> RunConfig:
    setting = SettingConfig(**options.only(option_values, ["pair"]), decoding=decoding)
    given = {"device": settings.device} | options.run_of(option_values)
    return checked(RunConfig, options.flag, setting=setting, **given)


@app.command()
@options.taking((*_TEXT_OPTIONS, "task", "limit", "batch"))
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
        raise InvalidSetting("--parallel is of an endpoint: name one with --endpoint, or give --batch.")
    if endpoint is None and rates:
        raise InvalidSetting("--request-rate is of an endpoint: name one with --endpoint.")
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
        config = _run_of(served, option_values, settings)
    else:
        config = _run(option_values, settings)
    is_given = option_values.get("limit") is not None
    prompts = run_commands.check_names(config.setting.pair, config.task, config.limit, settings, is_given=is_given)
    config = config.model_copy(update=prompts)
    run_commands.check_drafters([config])
    repository = local_runs.open_repository(settings)
    # Load before the run is stored: a pair that cannot be loaded leaves no run behind.
    loader = run_commands.loader_for([config], settings.threads)
    unfinished = None if fresh else find_unfinished(repository, settings.home, config)
    id = run_commands.going_on(unfinished) if unfinished else repository.create_run(config)
    with local_runs.exclusive_writing(repository, settings.home, "run", id) as writing:
        label = config.setting.decoding.label
        (finished,) = run_commands.perform(repository, label, [id], loader, settings, writing)
    output.tell_run(finished, json)


@app.command()
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
        raise InvalidSetting("The price is that of the worker's machine: set FSD_PRICE_PER_HOUR where the worker runs.")
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


for command in (
    recorded_commands.resume, recorded_commands.delete, recorded_commands.rescore, recorded_commands.bounds,
    catalogue.tasks, catalogue.fetch, timing.bench,
):  # fmt: skip
    app.command()(command)
app.command("calibrate")(calibrate_command.calibrate)
app.command("record")(replay_commands.record)
app.command("replay")(replay_commands.replay)
app.command("annotate")(annotating.annotate)
app.command("runs")(catalogue.list_runs)
app.command("export")(moving.export_workspace)
app.command("import")(moving.import_workspace)
app.command("import-results")(import_results_command.import_results)


@app.command()
def worker(
    on: Annotated[
        str, typer.Option("--on", metavar="NAME", help="Work beside other workers on one PostgreSQL, under this name.")
    ] = "",
) -> None:
    """Run queued experiments and playground requests until stopped.

    A home has one worker. With --on, any number of machines share the runs of each experiment.
    """
    settings = get_settings()
    with no_garbage_collection():
        from fsd_core.worker.worker import Worker

    scheduler = None
    if settings.executor == "ray" and not on:
        from fsd_core.worker.ray_executor import ray_scheduler

        scheduler = ray_scheduler(settings)
    Worker(settings, name=on, scheduler=scheduler).run()
