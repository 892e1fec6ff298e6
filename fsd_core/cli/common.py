"""Options and steps that commands share, built from the table of options.

Options that commands share, built from the table of options. Torch is not imported, so ``--help`` answers at
once.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsd_core.cli.output import download_bar, progress_bar, say
from fsd_core.config import LONGEST_PROMPT, DecodingConfig, RunConfig, SettingConfig
from fsd_core.config.options import (
    ALIASES,
    LENGTH_OPTIONS,
    LISTED,
    METHOD_OPTIONS,
    OPTIONS,
    Option,
    check_known,
    checked,
    method,
)
from fsd_core.errors import DatabaseUnavailable, FsdError, OutOfRange, TrackingUnavailable, Unreadable
from fsd_core.rules import RULES
from fsd_core.settings import HIGHEST_PRICE, Settings

if TYPE_CHECKING:
    from fsd_core.cli.output import StoredWork
    from fsd_core.evaluation.harness import PairLoader
    from fsd_core.evaluation.runner import Writing
    from fsd_core.models.loading import LoadedPair
    from fsd_core.storage.records import RunView
    from fsd_core.storage.repository import Repository
    from fsd_core.tasks import Task
    from fsd_core.tracking import MlflowMirror


def _current_name(typed: str) -> str:
    """Return the typed name, with a former name of an option replaced by its present one, with dashes."""
    current = ALIASES.get(typed.replace("-", "_"))
    return current.replace("_", "-") if current else typed


TYPER_OPTIONS: dict[str, Any] = {
    "no_args_is_help": True, "add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False,
    "context_settings": {"token_normalize_func": _current_name},
}  # fmt: skip
RUN = ("task", "limit", "seed", "dtype", "device", "batch")
"""options of a run besides its pair and its method"""


def flag(option: Option, value: Any = None) -> str:
    """Return the option as it is typed, such as ``--tree-tokens``, or ``--no-…`` if ``value`` is ``False``."""
    return f"--{'no-' if value is False else ''}{option.name.replace('_', '-')}"


def swept_flag(option: Option, value: Any = None) -> str:
    """Return the option as ``sweep`` takes it: a knob with several values has a plural name."""
    return f"--{swept_name(option).replace('_', '-')}" if option.is_knob else flag(option, value)


def swept_name(option: Option) -> str:
    """Return the name of a knob that takes several values, such as ``thresholds``."""
    return (option.plural or f"{option.name}s").lower().replace(" ", "_")


def _one_of(option: Option) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        for item in value if isinstance(value, list) else [value]:
            if item is not None:
                check_known(option, item, flag)
        return value

    return check


def read_number(flag: str, kind: type, low: float | None = None, high: float | None = None) -> Callable[[Any], Any]:
    """Return a parser for an ``int`` or ``float`` option from ``low`` to ``high``. It raises ``FsdError``, which Typer
    lets through, for anything else."""
    limits = f"at least {low}" if high is None else f"at most {high}" if low is None else f"from {low} to {high}"

    def read(typed: Any) -> Any:
        try:
            value = kind(typed)
        except ValueError:
            expected = "whole number" if kind is int else "number"
            raise FsdError(f"{flag} is {str(typed)[:60]!r}: expected a {expected}.") from None
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            raise FsdError(f"{flag} is {value}: expected {limits}.")
        return value

    return read


def number_option(flag: str, kind: type, help: str, low: float | None = None, high: float | None = None) -> Any:
    """Return a numeric Typer option for ``Annotated``; see :func:`read_number`."""
    return typer.Option(flag, parser=read_number(flag, kind, low, high), metavar=f"<{kind.__name__}>", help=help)


def recorded_pair(name: str | None) -> str | None:
    """Return the name under which runs of a pair are recorded: of one that somebody has named, its models."""
    from fsd_core.models.model_pairs import MODEL_PAIRS
    from fsd_core.settings import get_settings
    from fsd_core.worker import run_actions
    from fsd_core.worker.pair_names import recorded_name

    settings = get_settings()
    if name is None or name in MODEL_PAIRS or not run_actions.has_database(settings):
        return name  # whoever reads it refuses an unknown one
    return recorded_name(run_actions.open_repository(settings), name)


def _parameter(option: Option, swept: bool, usual: str | None) -> inspect.Parameter:
    """Return the command parameter of an option, with its Typer metadata. Help shows ``usual`` as the default."""
    is_list = swept and option.name in (*LISTED, *LENGTH_OPTIONS) and option.name != "divergence"
    name, declaration = option.name, flag(option)
    description, extras = option.help, {}
    kind: Any = str if option.is_knob or option.choices else option.type
    if option.is_knob:
        extras["metavar"] = "NUMBER|off" if option.optional else "NUMBER"
        if swept:
            name, declaration = swept_name(option), swept_flag(option)
            description += f". For {', '.join(option.owners)}: a list such as 0.1,0.2 or a range start:stop:count"
            extras["metavar"], usual = "TEXT", "the rule's own values"
    elif option.type is bool:
        declaration = f"{flag(option)}/{flag(option, False)}"
    elif option.type in (int, float):
        extras |= {"parser": read_number(flag(option), option.type), "metavar": f"<{option.type.__name__}>"}
    if option.choices:
        description += f": {', '.join(option.choices)}"
        extras |= {"metavar": "NAME", "callback": _one_of(option)}
    if option.name == "pair":
        extras["callback"] = recorded_pair
    if is_list:
        description += "; may be given several times"
    if usual is not None:
        description += f" ({usual})"
    annotation: Any = (list[kind] if is_list else kind) | None
    parameter = typer.Option(declaration, help=f"{description}.", **extras)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[annotation, parameter]
    )


def _usual(option: Option) -> str | None:
    """Return the default of an option as help shows it, or ``None`` if the option's help already says it."""
    if option.name == "device":
        return None
    if option.name == "task":
        return "the pair's own"
    text = _value(option.default)
    for kind in option.owners if option.part == "acceptance" else ():  # a rule may have another default
        if (custom := _value(RULES[kind].model_fields[option.field].default)) != _value(option.default):
            text += f"; {kind}: {custom}"
    return text


def _value(value: Any) -> str:
    return "off" if value is None or value is False else "on" if value is True else f"{value}"


def taking(
    names: Iterable[str] = METHOD_OPTIONS, *, swept: bool = False, usual: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Callable], Callable]:
    """Replace the ``**option_values`` of a command by the options of these names; ``None`` means that an option was not
    given.

    ``swept`` lets the options of a sweep take several values. ``usual`` holds the defaults to show where they differ
    from the option's own.
    """

    def give(command: Callable) -> Callable:
        signature = inspect.signature(command, eval_str=True)
        declared = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        shared = [_parameter(OPTIONS[name], swept, usual.get(name) or _usual(OPTIONS[name])) for name in names]
        optional = [p.replace(kind=p.KEYWORD_ONLY) for p in declared if p.default is not p.empty]
        required = [p for p in declared if p.default is p.empty]
        return declare(command, [*required, *shared, *optional])

    return give


def declare(command: Callable, parameters: Sequence[inspect.Parameter]) -> Callable:
    """Give a command these parameters in place of its own, and return it."""
    signature = inspect.Signature(parameters)
    command.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
    return command


def only(option_values: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the given options among these names."""
    return {name: option_values[name] for name in names if option_values.get(name) is not None}


def unswept(option_values: dict[str, Any]) -> dict[str, Any]:
    """Return the given method options of a sweep, under their singular names."""
    names = {name: swept_name(option) if option.is_knob else name for name, option in METHOD_OPTIONS.items()}
    return {name: option_values[typed] for name, typed in names.items() if option_values.get(typed) is not None}


def run_of(option_values: dict[str, Any]) -> dict[str, Any]:
    """Return the given options of a run besides its pair and method. The task defaults to the pair's.

    Raises as ``get_pair`` does.
    """
    from fsd_core.models.model_pairs import get_pair

    given = only(option_values, RUN)
    return {"task": get_pair(option_values.get("pair") or OPTIONS["pair"].default).tasks[0]} | given


def _documented(name: str) -> Any:
    option = OPTIONS[name]
    if option.type in (int, float):
        return number_option(flag(option), option.type, f"{option.help}.")
    return typer.Option(flag(option), help=f"{option.help}.", callback=recorded_pair if name == "pair" else None)


Pair = Annotated[str, _documented("pair")]
Limit = Annotated[int, _documented("limit")]
MaxNewTokens = Annotated[int, _documented("max_new_tokens")]
Seed = Annotated[int, _documented("seed")]
Device = Annotated[str | None, _documented("device")]
Dtype = Annotated[
    str,
    typer.Option(
        "--dtype", metavar="NAME", callback=_one_of(OPTIONS["dtype"]),
        help=f"{OPTIONS['dtype'].help}: {', '.join(OPTIONS['dtype'].choices)}.",
    ),
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Start a new run even if an unfinished one has the same settings.")
]
PricePerHour = Annotated[
    float | None,
    number_option(
        "--price-per-hour", float,
        "Price of this machine per hour, in any currency: costs are recorded. [default: FSD_PRICE_PER_HOUR]",
    ),
]  # fmt: skip
SHORTEST_ID = 6  # characters


def _id_prefix(text: str) -> str:
    prefix = text.strip().lower()
    if len(prefix) < SHORTEST_ID:
        raise OutOfRange(
            f"The id {text!r} is too short: expected at least its first {SHORTEST_ID} characters. `runs` lists the ids "
            "of runs and experiments."
        )
    return prefix


Id = Annotated[
    str,
    typer.Argument(
        callback=_id_prefix,
        help=f"Id of a run or an experiment, as `runs` lists them; its first {SHORTEST_ID} characters are enough.",
    ),
]


def read_prompt(argument: str) -> str:
    """Return the prompt, or standard input for ``-`` without its byte order mark and its final line break.

    Raises ``InvalidSetting``.
    """
    try:
        text = argument
        if argument == "-":  # a character has at most four bytes; one more byte detects longer input
            text = (
                sys.stdin.buffer.read(4 * LONGEST_PROMPT + 1).decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
            )
        text.encode()
    except UnicodeError:
        raise Unreadable("The prompt is not valid UTF-8: expected text in that encoding.") from None
    if len(text) > LONGEST_PROMPT:
        raise OutOfRange(f"The prompt is too long: expected at most {LONGEST_PROMPT:,} characters.")
    return text


def config_of(option_values: dict[str, Any], settings: Settings) -> RunConfig:
    """Build the run config from the options. Raises ``InvalidSetting``."""
    return config_with(method(only(option_values, METHOD_OPTIONS), flag), option_values, settings)


def config_with(decoding: DecodingConfig, option_values: dict[str, Any], settings: Settings) -> RunConfig:
    """Build the run config of a decoding from the other options. Raises ``InvalidSetting``."""
    setting = SettingConfig(**only(option_values, ["pair"]), decoding=decoding)
    given = {"device": settings.device} | run_of(option_values)
    return checked(RunConfig, flag, setting=setting, **given)


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
    from fsd_core.tasks.custom import custom_task
    from fsd_core.worker import run_actions

    if name in TASKS or not (run_actions.has_database(settings) or settings.tasks_folder.is_dir()):
        return get_task(name)
    repository = run_actions.open_repository(settings)
    for sentence in custom_task.TaskFolder(settings.tasks_folder).take_in(repository):
        say(f"warning: {sentence}")
    return custom_task.find_task(name, repository)


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
    from fsd_core.evaluation.runner import RunObserver, execute_runs
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
    from fsd_core.tracking import MlflowMirror

    # Keep its table migrations off standard error. MLflow reads the variable at import, which comes later.
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    try:
        yield MlflowMirror(settings.resolved_mlflow_uri)
    except TrackingUnavailable as error:
        say(f"warning: {error}")
