"""Commands that measure, and that go on with what is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsd_core.cli import common, output
from fsd_core.cli.catalogue_commands import (
    EndpointName,
    EndpointNames,
    Loads,
    Rates,
    read_parallel,
    read_request_rates,
    served_decoding,
    shared_of,
)
from fsd_core.cli.output import (
    check_resumable,
    find_unfinished,
    find_unfinished_calibration,
    find_work,
    progress_bar,
    rounds_bar,
)
from fsd_core.config import DecodingConfig, RunConfig, SettingConfig, SweepConfig
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.config.options import METHOD_OPTIONS, checked, experiment_name, method, methods
from fsd_core.config.run_config import IN_FLIGHT, with_baselines
from fsd_core.errors import Contradiction, NotApplicable, UnfitModel
from fsd_core.rules import Served
from fsd_core.settings import Settings, get_settings
from fsd_core.worker import run_actions
from fsd_core.worker.pair_names import identified

if TYPE_CHECKING:
    from fsd_core.calibration.planning import Outcome
    from fsd_core.engines.client import RestartKnob
    from fsd_core.evaluation.harness import PairLoader
    from fsd_core.storage.records import RunView, Subject
    from fsd_core.storage.repository import Repository


@common.taking(("pair", *METHOD_OPTIONS, "seed", "dtype", "device", "task", "limit", "batch"))
def run(
    endpoint: EndpointName = None,
    parallel: Loads = None,
    request_rate: Rates = None,
    price_per_hour: common.PricePerHour = None,
    fresh: common.Fresh = False,
    json: common.Json = False,
    **option_values: Any,
) -> None:
    """Measure one setting, or a running engine, on a task and store the run. Repeat the command to continue a run that
    was killed."""
    settings = common.at_price(get_settings(), price_per_hour)
    loads, rates = read_parallel(parallel), read_request_rates(request_rate)
    if endpoint is None and parallel is not None:
        raise NotApplicable("--parallel is of an endpoint: name one with --endpoint, or give --batch.")
    if endpoint is None and rates:
        raise NotApplicable("--request-rate is of an endpoint: name one with --endpoint.")
    if endpoint is not None:
        served = served_decoding(run_actions.open_repository(settings), endpoint, shared_of(option_values))
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
        config = common.config_with(served, option_values, settings)
    else:
        config = common.config_of(option_values, settings)
    is_given = option_values.get("limit") is not None
    prompts = common.check_names(config.setting.pair, config.task, config.limit, settings, is_given=is_given)
    config = config.model_copy(update=prompts)
    common.check_drafters([config])
    repository = run_actions.open_repository(settings)
    # Load before the run is stored: a pair that cannot be loaded leaves no run behind.
    loader = common.loader_for([config], settings.threads)
    config = identified(repository, config)
    unfinished = None if fresh else find_unfinished(repository, settings.home, config)
    id = common.going_on(unfinished) if unfinished else repository.create_run(config)
    with run_actions.exclusive_writing(repository, settings.home, "run", id) as writing:
        label = config.setting.decoding.label
        (finished,) = common.perform(repository, label, [id], loader, settings, writing)
    output.tell_run(finished, json)


@common.taking(("pair", *METHOD_OPTIONS, "task", "limit", "dtype", "device", "batch"), swept=True)
def sweep(
    seed: Annotated[
        list[int] | None, common.number_option("--seed", int, "Seed; may be given several times. [default: 0]")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the experiment.")] = None,
    baselines: Annotated[bool, typer.Option(help="Measure the target alone and exact SD too.")] = True,
    all_baselines: Annotated[
        bool, typer.Option("--all-baselines", help="Measure block and the draft alone too, as matched comparisons do.")
    ] = False,
    endpoint: EndpointNames = None,
    parallel: Loads = None,
    enqueue: Annotated[bool, typer.Option("--enqueue", help="Queue the work for the worker and return.")] = False,
    price_per_hour: common.PricePerHour = None,
    fresh: common.Fresh = False,
    json: common.Json = False,
    **option_values: Any,
) -> None:
    """Measure several thresholds, rules, drafters and topologies on the same prompts, as one experiment. An option
    applies to the settings that read it. Repeat the command to continue an experiment that was killed."""
    if enqueue and price_per_hour is not None:
        raise NotApplicable("The price is that of the worker's machine: set FSD_PRICE_PER_HOUR where the worker runs.")
    settings = common.at_price(get_settings(), price_per_hour)
    contenders = methods(common.unswept(option_values), common.swept_flag)
    decodings = with_baselines(contenders, everything=all_baselines) if baselines else contenders
    if endpoint:
        repository = run_actions.open_repository(settings)
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
    given = {"device": settings.device} | common.only(option_values, ["pair"]) | common.run_of(option_values)
    config = checked(
        SweepConfig, common.flag, seeds=tuple(seeds), decodings=tuple(decodings), batches=tuple(batches),
        rates=tuple(rates), **given,
    )  # fmt: skip
    is_given = option_values.get("limit") is not None
    prompts = common.check_names(config.pair, config.task, config.limit, settings, is_given=is_given)
    config = config.model_copy(update={"name": named(config.task)} | prompts)
    common.check_drafters(config.runs())
    repository = run_actions.open_repository(settings)
    config = identified(repository, config)
    if enqueue:
        output.tell_experiment(repository.create_experiment(config), [], json)
        output.tell_worker(repository)
        return
    loader = common.loader_for(config.runs(), settings.threads)
    unfinished = None if fresh else find_unfinished(repository, settings.home, config)
    id = common.going_on(unfinished) if unfinished else repository.create_experiment(config, enqueue=False)
    with run_actions.exclusive_writing(repository, settings.home, "experiment", id) as writing:
        ids = [run.id for run in repository.experiment(id).runs]
        finished = common.perform(repository, config.name, ids, loader, settings, writing)
    output.tell_experiment(id, finished, json)


EndpointToCalibrate = Annotated[
    str | None,
    typer.Option("--endpoint", metavar="NAME", help="Search the knob of this running engine; see `endpoints`."),
]
Restart = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="With --endpoint: start the engine for each value by this command, which has {rule} or {knob} in it. It "
        "is run without a shell, and is not stored.",
    ),
]  # fmt: skip
_TYPED = {"margin": "--within", "acceptance": "--accepted", "minutes": "--minutes", "choosing": "--choosing",
          "limit": "--limit", "other goals": "--accepted or --fastest"}  # fmt: skip


@common.taking(
    ("pair", *METHOD_OPTIONS, "task", "seed", "dtype", "device"), swept=True,
    usual={"acceptance": "all that forgive by a knob", "draft_length": "those that replay proposes"},
)  # fmt: skip
def calibrate(
    within: Annotated[
        float | None,
        common.number_option(
            "--within", float, "Points of accuracy that may be lost against the target alone. [default: 2]"
        ),
    ] = None,
    accepted: Annotated[
        float | None, common.number_option("--accepted", float, "Instead: least mean acceptance rate, such as 0.9.")
    ] = None,
    fastest: Annotated[bool, typer.Option("--fastest", help="Instead: the fastest, whatever it costs.")] = False,
    minutes: Annotated[
        float | None, common.number_option("--minutes", float, "Of decoding that may be spent. [default: 10]")
    ] = None,
    limit: Annotated[
        int | None, common.number_option("--limit", int, "Prompts that may be used. [default: the task's, up to 600]")
    ] = None,
    choosing: Annotated[
        int | None,
        common.number_option(
            "--choosing", int, "Prompts that choose the finalists; the others try them. [default: 64]"
        ),
    ] = None,
    endpoint: EndpointToCalibrate = None,
    restart: Restart = None,
    fresh: common.Fresh = False,
    time_again: Annotated[
        str, typer.Option(metavar="EXPERIMENT", help="Only time the finalists of an ended calibration again: a minute.")
    ] = "",
    json: common.Json = False,
    **option_values: Any,
) -> None:
    """Find the fastest setting that keeps a promise. Rules, knobs and draft lengths are narrowed down on some prompts,
    and the best are tried on others. Without --acceptance all rules take part. With --endpoint a running engine is told
    them. Repeat the command to continue, with more minutes if the previous ones ran out."""
    if sum((within is not None, accepted is not None, fastest)) > 1:
        raise Contradiction("--within, --accepted and --fastest are different goals: give one of them.")
    if restart and not endpoint:
        raise NotApplicable("--restart starts the engine of an endpoint: name it with --endpoint.")
    settings = get_settings()
    if time_again:
        _time_again(time_again, settings, restart, json)
        return
    goal = "acceptance" if accepted is not None else "speed" if fastest else "accuracy"
    config = _config(
        option_values,
        settings,
        goal=goal,
        margin=within,
        acceptance=accepted,
        minutes=minutes,
        limit=limit,
        choosing=choosing,
        endpoint=_engine(endpoint, settings, restarted=restart is not None),
    )
    repository = run_actions.open_repository(settings)
    loader = common.loader_for(config.round_runs([config.target, *config.decodings], 0, 1), settings.threads)
    with _knob(repository, config, restart):  # a wrong command is refused before anything is stored
        pass
    config = identified(repository, config)
    id = None if fresh else find_unfinished_calibration(repository, settings.home, config)
    if id:
        output.say(f"Continuing the calibration {id}, which has the same settings. --fresh starts a new one.")
    id = id or repository.create_experiment(config, enqueue=False)
    perform(repository, settings, id, loader, json, restart)


def _engine(name: str | None, settings: Settings, *, restarted: bool) -> Served | None:
    from fsd_core.worker.endpoints import engine_to_calibrate

    return engine_to_calibrate(run_actions.open_repository(settings), name, restarted=restarted) if name else None


def _time_again(id: str, settings: Settings, restart: str | None, json: bool) -> None:
    """Time the finalists of a calibration again in this process. Raises as ``runs_again``."""
    from fsd_core.calibration.summary import runs_again

    repository = run_actions.open_repository(settings)
    id = find_work(repository, id).id
    configs = runs_again(repository, id)
    loader = common.loader_for(configs, settings.threads)
    repository.time_again(id, configs, enqueue=False)
    perform(repository, settings, id, loader, json, restart)


def _config(option_values: dict[str, Any], settings: Settings, **request: Any) -> CalibrationConfig:
    """Build the calibration config from the options. Raises ``InvalidSetting`` before anything is loaded."""
    from fsd_core.calibration.request import build_calibration

    given: dict[str, Any] = (
        {"device": settings.device} | common.only(option_values, ["pair"]) | common.run_of(option_values)
    )
    task, seeds = common.find_task(given.pop("task"), settings), (given.pop("seed", 0),)
    return build_calibration(
        task, [common.unswept(option_values)], common.swept_flag, _TYPED, seeds=seeds, **given, **request
    )


def perform(
    repository: Repository, settings: Settings, id: str, loader: PairLoader, json: bool, restart: str | None = None,
    reopened: Sequence[str] = (),
) -> None:  # fmt: skip
    """Run the remaining work of a calibration, with the ``reopened`` runs queued again, and print its result.
    ``restart``: see :class:`RestartKnob`."""
    from fsd_core.calibration.running import calibrate as go_on
    from fsd_core.evaluation.runner import RunObserver
    from fsd_core.models import threads

    config = repository.experiment(id).config
    assert isinstance(config, CalibrationConfig)
    again = "the same command" if restart else f"`python -m fsd_core resume {id}`"
    with run_actions.exclusive_writing(repository, settings.home, "experiment", id) as writing:
        if reopened:
            repository.reopen_runs(reopened, enqueue=False)
        with rounds_bar() as (begin_round, advance):

            def before_a_prompt(_: RunView) -> None:
                threads.fit()
                advance()

            with common.telling_how_to_go_on(again):
                observer = RunObserver(before_a_prompt, writing, on_calibration_round=begin_round)
                with _knob(repository, config, restart) as knob:
                    outcome = go_on(repository, id, config, loader, observer, knob)
        common.mirror(repository, [run.id for run in repository.experiment(id).runs], settings)
    _print_outcome(id, config, outcome, json)


@contextmanager
def _knob(repository: Repository, config: CalibrationConfig, restart: str | None) -> Iterator[RestartKnob | None]:
    """Yield what restarts the engine of a calibration; ``None`` where none is restarted."""
    if restart is None or config.endpoint is None:
        yield None
        return
    from fsd_core.engines.client import RestartKnob

    rules = [one.acceptance.rule for one in config.decodings if isinstance(one.acceptance, Served)]
    variable = repository.engine(config.endpoint.endpoint).key_variable
    with RestartKnob(restart, [rule for rule in rules if rule is not None], variable) as knob:
        yield knob


def _print_outcome(id: str, config: CalibrationConfig, outcome: Outcome, as_json: bool) -> None:
    from fsd_core.calibration.summary import as_json as told
    from fsd_core.calibration.summary import finding_text, verdict, whole_minutes

    if as_json:
        output.print_json({"experiment_id": id} | told(config, outcome))
        return
    print(verdict(config, outcome))
    for finding in outcome.finalists:
        print(f"  {finding.decoding.label}: {finding_text(finding)}")
    if outcome.more:
        minutes = math.ceil(config.all_minutes + whole_minutes(outcome.more.minutes))
        print(f"The same command with --minutes {minutes} continues.")
    print(f"Experiment {id}")


def bench(
    pair: common.Pair = "bundled",
    task: Annotated[str | None, typer.Option(help="Task of the prompts. [default: the pair's own]")] = None,
    synthetic: Annotated[
        str | None, typer.Option(help="Time rounds with random weights in real sizes instead: llama-8b/1b.")
    ] = None,
    probability: Annotated[
        float, common.number_option("--probability", float, "With --synthetic: chance to keep a token, 0 to 1.", 0, 1)
    ] = 0.8,
    limit: common.Limit = 50,
    draft_length: Annotated[
        int, common.number_option("--draft-length", int, "Tokens drafted per round, here and by transformers.")
    ] = 5,
    threshold: Annotated[str, typer.Option(metavar="NUMBER|off", help="FSD's threshold on js.")] = "0.1",
    max_new_tokens: common.MaxNewTokens = 128,
    threads: Annotated[
        int | None, common.number_option("--threads", int, "CPU threads (FSD_THREADS, or as many as help).", 1)
    ] = None,
    dtype: common.Dtype = "float32",
    device: common.Device = None,
    json: common.Json = False,
) -> None:
    """Time our decoding loops against those of transformers on the same prompts, and rounds against the memory
    bandwidth."""
    settings = get_settings()
    if synthetic:
        report = bench_synthetic(
            synthetic, device or settings.device, dtype, threads or settings.threads, draft_length, probability
        )
        output.print_json(report) if json else output.print_rounds(report)
        return
    decoding = method(
        {"threshold": threshold, "draft_length": draft_length, "max_new_tokens": max_new_tokens}, common.flag
    )
    from fsd_core.models.model_pairs import get_pair, require_draft

    require_draft(pair)
    prompts = common.find_task(task or get_pair(pair).tasks[0], settings)
    prompts.check_alone("bench")
    examples = prompts.examples(limit)
    setting = SettingConfig(pair=pair, decoding=decoding)
    config = checked(RunConfig, common.flag, setting=setting, dtype=dtype, device=device or settings.device)
    loaded = common.load_for([config], threads or settings.threads)
    if loaded.target.split:
        raise UnfitModel(
            "'bench' also times transformers' own loops, which one process runs, and this target is split among more. "
            "Start it without torchrun, or measure our loop alone with 'run'."
        )

    from fsd_core.evaluation.speed import measure, measure_rounds

    with progress_bar("Timing", limit) as advance_to:
        report = measure(
            loaded, [example.model_input for example in examples], draft_length=draft_length,
            threshold=decoding.threshold, max_new_tokens=max_new_tokens, on_prompt=advance_to,
        )  # fmt: skip
    rounds = measure_rounds(loaded.target, loaded.draft, draft_length=draft_length)
    if json:
        output.print_json(report | {"rounds": rounds})
    else:
        output.print_bench(report)
        output.print_rounds(rounds)


def bench_synthetic(
    name: str, device: str, dtype: str, threads: int | None, draft_length: int, probability: float
) -> dict[str, Any]:
    """Time rounds of a pair with random weights against the memory bandwidth.

    Raises ``UnknownName``, ``InvalidSetting`` or ``ModelUnavailable``.
    """
    import torch

    from fsd_core.evaluation.speed import measure_rounds, synthetic_pair
    from fsd_core.models.loading import fitting_dtype, resolve_device

    if threads:
        torch.set_num_threads(threads)
    target_device = resolve_device(device)
    torch_dtype = getattr(torch, "bfloat16" if dtype == "auto" else fitting_dtype(dtype, target_device))
    pair = synthetic_pair(name, target_device, torch_dtype)
    return measure_rounds(*pair, draft_length=draft_length, probability=probability)


def resume(id: common.Id, json: common.Json = False) -> None:
    """Continue a run or an experiment that was killed, failed or was cancelled, at its next prompt. Failed prompts are
    tried again."""
    settings = get_settings()
    repository = run_actions.open_repository(settings)
    work = find_work(repository, id)
    config = repository.experiment(work.id).config if work.is_experiment else None
    if isinstance(config, CalibrationConfig) and not work.owned_by_worker:
        remaining = [run.id for run in work.runs if run.has_more_to_do]
        loader = common.loader_for(config.round_runs([config.target, *config.decodings], 0, 1), settings.threads)
        perform(repository, settings, work.id, loader, json, reopened=remaining)
        return
    check_resumable(work)
    if work.owned_by_worker:
        repository.reopen_runs([run.id for run in work.runs])
        output.tell_resumed(work.id, work.is_experiment, json)
        output.tell_worker(repository)
        return
    with run_actions.exclusive_writing(repository, settings.home, *work.lock) as writing:
        loader = common.loader_for([run.config for run in work.runs], settings.threads)
        ids = repository.reopen_runs([run.id for run in work.runs], enqueue=False)
        finished = common.perform(repository, work.title, ids, loader, settings, writing)
    if work.is_experiment:
        output.tell_experiment(work.id, finished, json)
    else:
        output.tell_run(finished[0], json)


def delete(
    id: common.Id,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a run, or an experiment with all its runs, here and in MLflow. This cannot be undone."""
    from fsd_core.actions import runs
    from fsd_core.actions.action import Ask

    ask = Ask(get_settings(), operator=True)
    work = find_work(ask.repository, id)
    kind: Subject = "experiment" if work.is_experiment else "run"
    resting = runs.resting(ask, kind, work.id)
    question = f"Delete the {output.deletion_text(ask.repository, kind, work.id)}?"
    output.confirm(" ".join(filter(None, (question, resting, "This cannot be undone."))), yes)

    runs.delete(ask, kind, work.id, evidence=True)
    common.delete_copies(ask.repository, ask.settings)
    print(" ".join(filter(None, (f"The {kind} {work.id} was deleted.", resting))))


def rescore(
    id: common.Id,
    answer_pattern: Annotated[
        str,
        typer.Option(
            help="Regular expression that finds answers where nothing else does; it becomes part of the task."
        ),
    ] = "",
    json: common.Json = False,
) -> None:
    """Score the texts of an ended run, or of all runs of an experiment, again. Nothing is generated."""
    settings = get_settings()
    repository = run_actions.open_repository(settings)
    work = find_work(repository, id)

    from fsd_core.evaluation import rescoring

    if answer_pattern:
        changed = rescoring.rescore_with(repository, work.runs[0].id, answer_pattern, "command line")
    else:
        changed = {run.id: rescoring.rescore(repository, run.id) for run in work.runs}
    common.mirror(repository, [id for id, count in changed.items() if count], settings)
    output.tell_rescored(changed, json)


def bounds(
    id: common.Id,
    temperature: Annotated[
        float | None,
        common.number_option("--temperature", float, "Temperature of p and q. [default: the run's, or 1]"),
    ] = None,
    positions: Annotated[
        int, common.number_option("--positions", int, "Positions to sample from its texts, 2 to 10,000.", 2, 10_000)
    ] = 48,
    seed: common.Seed = 0,
    json: common.Json = False,
) -> None:
    """Compute how often several drafts could have been accepted in ended runs, by every verifier and at best."""
    settings = get_settings()
    repository = run_actions.open_repository(settings)
    work = find_work(repository, id)

    from fsd_core.evaluation import bounds as measuring

    for run in work.runs:
        measuring.check(repository, run.id)
    loaded = common.load_for([run.config for run in work.runs], settings.threads)
    measured = {
        run.id: measuring.measure(repository, run.id, loaded, temperature, positions, seed) for run in work.runs
    }
    common.mirror(repository, list(measured), settings)
    output.tell_bounds(measured, json)
