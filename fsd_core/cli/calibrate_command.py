"""``calibrate``: find the fastest setting that keeps a promise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsd_core.cli import output, run_commands
from fsd_core.cli import shared_options as options
from fsd_core.cli.bars import rounds_bar
from fsd_core.cli.find import find_unfinished_calibration, find_work
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.config.options import METHOD_OPTIONS
from fsd_core.errors import Contradiction, NotApplicable
from fsd_core.rules import Served
from fsd_core.settings import Settings, get_settings
from fsd_core.worker import local_runs
from fsd_core.worker.pair_names import identified

if TYPE_CHECKING:
    from fsd_core.calibration.planning import Outcome
    from fsd_core.engines.engine_knob import RestartKnob
    from fsd_core.evaluation.generator import PairLoader
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunView

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


@options.taking(
    ("pair", *METHOD_OPTIONS, "task", "seed", "dtype", "device"), swept=True,
    usual={"acceptance": "all that forgive by a knob", "draft_length": "those that replay proposes"},
)  # fmt: skip
def calibrate(
    within: Annotated[
        float | None,
        options.number("--within", float, "Points of accuracy that may be lost against the target alone. [default: 2]"),
    ] = None,
    accepted: Annotated[
        float | None, options.number("--accepted", float, "Instead: least mean acceptance rate, such as 0.9.")
    ] = None,
    fastest: Annotated[bool, typer.Option("--fastest", help="Instead: the fastest, whatever it costs.")] = False,
    minutes: Annotated[
        float | None, options.number("--minutes", float, "Of decoding that may be spent. [default: 10]")
    ] = None,
    limit: Annotated[
        int | None, options.number("--limit", int, "Prompts that may be used. [default: the task's, up to 600]")
    ] = None,
    choosing: Annotated[
        int | None,
        options.number("--choosing", int, "Prompts that choose the finalists; the others try them. [default: 64]"),
    ] = None,
    endpoint: EndpointToCalibrate = None,
    restart: Restart = None,
    fresh: options.Fresh = False,
    time_again: Annotated[
        str, typer.Option(metavar="EXPERIMENT", help="Only time the finalists of an ended calibration again: a minute.")
    ] = "",
    json: options.Json = False,
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
    repository = local_runs.open_repository(settings)
    loader = run_commands.loader_for(config.round_runs([config.target, *config.decodings], 0, 1), settings.threads)
    with _knob(repository, config, restart):  # a wrong command is refused before anything is stored
        pass
    config = identified(repository, config)
    id = None if fresh else find_unfinished_calibration(repository, settings.home, config)
    if id:
        output.say(f"Continuing the calibration {id}, which has the same settings. --fresh starts a new one.")
    id = id or repository.create_experiment(config, enqueue=False)
    perform(repository, settings, id, loader, json, restart)


def _engine(name: str | None, settings: Settings, *, restarted: bool) -> Served | None:
    from fsd_core.worker.endpoint_names import engine_to_calibrate

    return engine_to_calibrate(local_runs.open_repository(settings), name, restarted=restarted) if name else None


def _time_again(id: str, settings: Settings, restart: str | None, json: bool) -> None:
    """Time the finalists of a calibration again in this process. Raises as ``runs_again``."""
    from fsd_core.calibration.timing_again import runs_again

    repository = local_runs.open_repository(settings)
    id = find_work(repository, id).id
    configs = runs_again(repository, id)
    loader = run_commands.loader_for(configs, settings.threads)
    repository.time_again(id, configs, enqueue=False)
    perform(repository, settings, id, loader, json, restart)


def _config(option_values: dict[str, Any], settings: Settings, **request: Any) -> CalibrationConfig:
    """Build the calibration config from the options. Raises ``InvalidSetting`` before anything is loaded."""
    from fsd_core.calibration.request import build_calibration

    given: dict[str, Any] = (
        {"device": settings.device} | options.only(option_values, ["pair"]) | options.run_of(option_values)
    )
    task, seeds = run_commands.find_task(given.pop("task"), settings), (given.pop("seed", 0),)
    return build_calibration(
        task, [options.unswept(option_values)], options.swept_flag, _TYPED, seeds=seeds, **given, **request
    )


def perform(
    repository: Repository, settings: Settings, id: str, loader: PairLoader, json: bool, restart: str | None = None
) -> None:
    """Run the remaining work of a calibration and print its result. ``restart``: see :class:`RestartKnob`."""
    from fsd_core.calibration.running import calibrate as go_on
    from fsd_core.evaluation.observer import RunObserver
    from fsd_core.models import threads

    config = repository.experiment(id).config
    assert isinstance(config, CalibrationConfig)
    again = "the same command" if restart else f"`python -m fsd_core resume {id}`"
    with local_runs.exclusive_writing(repository, settings.home, "experiment", id) as writing:
        with rounds_bar() as (begin_round, advance):

            def before_a_prompt(_: RunView) -> None:
                threads.fit()
                advance()

            with run_commands.telling_how_to_go_on(again):
                observer = RunObserver(before_a_prompt, writing, on_calibration_round=begin_round)
                with _knob(repository, config, restart) as knob:
                    outcome = go_on(repository, id, config, loader, observer, knob)
        run_commands.mirror(repository, [run.id for run in repository.experiment(id).runs], settings)
    _print_outcome(id, config, outcome, json)


@contextmanager
def _knob(repository: Repository, config: CalibrationConfig, restart: str | None) -> Iterator[RestartKnob | None]:
    """Yield what restarts the engine of a calibration; ``None`` where none is restarted."""
    if restart is None or config.endpoint is None:
        yield None
        return
    from fsd_core.engines.engine_knob import RestartKnob

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
