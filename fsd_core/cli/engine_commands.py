"""Commands for running engines: ``endpoints``, ``endpoints add``, ``show``, ``check`` and ``remove``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args
from urllib.parse import urlsplit

import typer

from fsd_core.addresses import LOOPBACK
from fsd_core.cli import output
from fsd_core.cli import shared_options as options
from fsd_core.config import DecodingConfig
from fsd_core.config.building import method
from fsd_core.config.options import METHOD_OPTIONS
from fsd_core.config.run_config import IN_FLIGHT, MOST_ROWS
from fsd_core.rules import ENGINE_TITLES, EngineName, Served
from fsd_core.settings import get_settings
from fsd_core.worker import local_runs

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import ServedEngine

_OPTIONS: dict[str, Any] = options.TYPER_OPTIONS | {"no_args_is_help": False}
endpoints = typer.Typer(
    help="Running engines that are measured like settings: vLLM, SGLang, llama.cpp and others.",
    invoke_without_command=True, **_OPTIONS,
)  # fmt: skip

Name = Annotated[str, typer.Argument(help="Name of an endpoint, such as vllm-draft5.")]
EndpointName = Annotated[
    str | None,
    typer.Option("--endpoint", metavar="NAME", help="Measure this running engine in place of a rule; see `endpoints`."),
]
EndpointNames = Annotated[
    list[str] | None,
    typer.Option("--endpoint", metavar="NAME", help="Measure this running engine too; may be given several times."),
]
Loads = Annotated[
    str | None,
    typer.Option(
        "--parallel", metavar="NUMBERS",
        help="How many prompts an endpoint is asked at once, such as 8. A list such as 1,2,4 gives a run each. In a "
        "sweep it is the batch size of our own loop too.",
    ),
]  # fmt: skip
Rates = Annotated[
    str | None,
    typer.Option(
        "--request-rate", metavar="NUMBERS",
        help="Prompts that arrive at an endpoint in a second, such as 2, at random. A list such as 1,2,4 gives a run "
        f"each. --parallel is then how many may be open at once. [default of it: {IN_FLIGHT}]",
    ),
]  # fmt: skip
_WHO = "command line"


@endpoints.callback()
def list_endpoints(context: typer.Context) -> None:
    """List the running engines that somebody has named."""
    if context.invoked_subcommand is not None:
        return
    settings = get_settings()
    engines = local_runs.open_repository(settings).engines() if local_runs.has_database(settings) else []
    output.print_table(("Name", "Kind", "Model", "Address", "Key"), [_row(engine) for engine in engines], figures=False)


@endpoints.command("add")
def add_endpoint(
    name: Name,
    url: Annotated[str, typer.Option(metavar="URL", help="Base address, such as http://127.0.0.1:8000/v1.")],
    model: Annotated[str, typer.Option(metavar="NAME", help="The model, as the server calls it.")],
    kind: Annotated[str, typer.Option(metavar="KIND", help=f"What it is: {', '.join(get_args(EngineName))}.")],
    key_variable: Annotated[
        str, typer.Option(metavar="VARIABLE", help="Environment variable that holds its key, which is never stored.")
    ] = "",
    hardware: Annotated[str, typer.Option(metavar="TEXT", help="What it computes on, such as 'one H100'.")] = "",
    check: Annotated[bool, typer.Option(help="Ask the engine whether it is there, and has the model.")] = True,
) -> None:
    """Name a running engine. `run --endpoint NAME` then measures it. A name that is given again means the new one."""
    from fsd_core.worker.endpoint_names import checked_hardware, checked_variable

    served = Served.checked(endpoint=name, url=url, model=model, engine=kind)
    key_variable, hardware = checked_variable(key_variable), checked_hardware(hardware)
    if key_variable and served.url.startswith("http:") and urlsplit(served.url).hostname not in LOOPBACK:
        output.say("warning: the key travels unencrypted to this address: https hides it.")
    found = _checked(served, key_variable) if check else ""
    local_runs.open_repository(get_settings()).add_engine(served, key_variable, _WHO, hardware=hardware)
    print(f"{name} is {found or 'kept, unchecked'}. Measure with --endpoint {name}.")


@endpoints.command("show")
def show_endpoint(name: Name) -> None:
    """Print what is kept of an endpoint."""
    engine = local_runs.open_repository(get_settings()).engine(name)
    kind, key = ENGINE_TITLES[engine.served.engine], engine.key_variable or "none"
    on = f", on {engine.hardware}" if engine.hardware else ""
    print(f"{name}: {kind} at {engine.served.url}{on}, model {engine.served.model}, key {key}, by {engine.added_by}")


@endpoints.command("check")
def check_endpoint(name: Name) -> None:
    """Ask an engine whether it is there, and has the model."""
    from fsd_core.worker.endpoint_names import check_endpoint as asked

    settings = get_settings()
    print(asked(local_runs.open_repository(settings), settings, name, quickly=False))


@endpoints.command("remove")
def remove_endpoint(name: Name) -> None:
    """Forget an endpoint. What was measured stays."""
    local_runs.open_repository(get_settings()).remove_engine(name)
    print(f"{name} is forgotten. Its runs stay.")


def served_decoding(repository: Repository, name: str, shared: Mapping[str, Any]) -> DecodingConfig:
    """Return the decoding of an endpoint, which has what a method and its baseline share. Asks the engine first.

    ``shared``: see ``DecodingConfig.shared``. Raises ``UnknownName``, ``InvalidSetting`` and ``EngineUnavailable``.
    """
    from fsd_core.worker.endpoint_names import check_endpoint as asked
    from fsd_core.worker.endpoint_names import endpoint_decodings

    (decoding,) = endpoint_decodings([repository.engine(name)], shared)
    asked(repository, get_settings(), name, quickly=False)
    return decoding


def shared_of(option_values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the options say of prompts and sampling. Raises ``InvalidSetting`` for those of our own loop."""
    from fsd_core.worker.endpoint_names import check_shared

    given = [name for name in METHOD_OPTIONS if option_values.get(name) is not None]
    check_shared(given, options.flag)
    return method({name: option_values[name] for name in given}, options.flag).shared


def read_parallel(text: str | None) -> list[int]:
    """Return the numbers of a list such as ``1,2,4``; empty for ``None``. Raises ``FsdError``."""
    read = options.read_number("--parallel", int, 1, MOST_ROWS)
    return list(dict.fromkeys(read(part.strip()) for part in text.split(","))) if text is not None else []


def read_request_rates(text: str | None) -> list[float]:
    """Return the numbers of a list such as ``0.5,1,2``; empty for ``None``. Raises ``FsdError``."""
    read = options.read_number("--request-rate", float)
    return list(dict.fromkeys(read(part.strip()) for part in text.split(","))) if text is not None else []


def _row(engine: ServedEngine) -> tuple[str, ...]:
    served = engine.served
    return engine.name, ENGINE_TITLES[served.engine], served.model, served.url, engine.key_variable or "none"


def _checked(served: Served, key_variable: str) -> str:
    from fsd_core.engines.engine_load import check_engine
    from fsd_core.worker.endpoint_names import described

    return described(served, check_engine(served, key_variable))
