"""The options that commands share, made from the table of options. No torch: ``--help`` answers at once."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any

import typer

from fsd_core.config import LONGEST_PROMPT
from fsd_core.config.building import check_known
from fsd_core.config.options import ALIASES, METHOD_OPTIONS, OPTIONS, Option
from fsd_core.config.sweeps import LENGTH_OPTIONS, LISTED
from fsd_core.errors import FsdError, InvalidSetting
from fsd_core.rules import RULES


def _present(typed: str) -> str:
    """What was typed, or, where that is what an option was called before, the name that it has now, with dashes."""
    present = ALIASES.get(typed.replace("-", "_"))
    return present.replace("_", "-") if present else typed


TYPER_OPTIONS: dict[str, Any] = {
    "no_args_is_help": True, "add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False,
    "context_settings": {"token_normalize_func": _present},
}  # fmt: skip
RUN = ("task", "limit", "seed", "dtype", "device", "batch")
"""a run's options besides its pair and its method"""


def flag(option: Option, value: Any = None) -> str:
    """The option as it is typed, such as ``--tree-tokens``, or ``--no-…`` where ``value`` is ``False``."""
    return f"--{'no-' if value is False else ''}{option.name.replace('_', '-')}"


def swept_flag(option: Option, value: Any = None) -> str:
    """The same for ``sweep``, which takes several values of a knob under the name of their plural."""
    return f"--{swept_name(option).replace('_', '-')}" if option.is_knob else flag(option, value)


def swept_name(option: Option) -> str:
    """The name of a knob that takes several values, such as ``thresholds``."""
    return (option.plural or f"{option.name}s").lower().replace(" ", "_")


def _one_of(option: Option) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                check_known(option, one, flag)
        return value

    return check


def read_number(flag: str, kind: type, low: float | None = None, high: float | None = None) -> Callable[[Any], Any]:
    """Reads what was typed for an option that is an ``int`` or a ``float`` from ``low`` to ``high``. Raises
    ``FsdError``, which Typer lets through, for anything else."""
    within = f"at least {low}" if high is None else f"at most {high}" if low is None else f"from {low} to {high}"

    def read(typed: Any) -> Any:
        try:
            value = kind(typed)
        except ValueError:
            expected = "whole number" if kind is int else "number"
            raise FsdError(f"{flag} is {str(typed)[:60]!r}: expected a {expected}.") from None
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            raise FsdError(f"{flag} is {value}: expected {within}.")
        return value

    return read


def number(flag: str, kind: type, help: str, low: float | None = None, high: float | None = None) -> Any:
    """A command's own option that is a number, for ``Annotated``; see :func:`read_number`."""
    return typer.Option(flag, parser=read_number(flag, kind, low, high), metavar=f"<{kind.__name__}>", help=help)


def _parameter(option: Option, swept: bool, usual: str | None) -> inspect.Parameter:
    """The parameter of a command that is an option, with what Typer must know of it. ``usual``: as help shows it."""
    several = swept and option.name in (*LISTED, *LENGTH_OPTIONS) and option.name != "divergence"
    name, declared = option.name, flag(option)
    description, more = option.help, {}
    kind: Any = str if option.is_knob or option.choices else option.type
    if option.is_knob:
        more["metavar"] = "NUMBER|off" if option.optional else "NUMBER"
        if swept:
            name, declared = swept_name(option), swept_flag(option)
            description += f". For {', '.join(option.owners)}: a list such as 0.1,0.2 or a range start:stop:count"
            more["metavar"], usual = "TEXT", "the rule's own values"
    elif option.type is bool:
        declared = f"{flag(option)}/{flag(option, False)}"
    elif option.type in (int, float):
        more |= {"parser": read_number(flag(option), option.type), "metavar": f"<{option.type.__name__}>"}
    if option.choices:
        description += f": {', '.join(option.choices)}"
        more |= {"metavar": "NAME", "callback": _one_of(option)}
    if several:
        description += "; may be given several times"
    if usual is not None:
        description += f" ({usual})"
    annotation: Any = (list[kind] if several else kind) | None
    parameter = typer.Option(declared, help=f"{description}.", **more)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[annotation, parameter]
    )


def _usual(option: Option) -> str | None:
    """The value of an option that is not given, as help shows it; ``None`` where the help says it."""
    if option.name == "device":
        return None
    if option.name == "task":
        return "the pair's own"
    words = _value(option.default)
    for kind in option.owners if option.part == "acceptance" else ():  # a rule may have a value of its own
        if (own := _value(RULES[kind].model_fields[option.field].default)) != _value(option.default):
            words += f"; {kind}: {own}"
    return words


def _value(value: Any) -> str:
    return "off" if value is None or value is False else "on" if value is True else f"{value}"


def taking(
    names: Iterable[str] = METHOD_OPTIONS, *, swept: bool = False, usual: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Callable], Callable]:
    """Gives a command the options of these names in place of its ``**chosen``; ``None`` is one that was not given.

    ``swept``: several values of what a sweep takes several of. ``usual``: what stands for options that are not given,
    where that is not their default.
    """

    def give(command: Callable) -> Callable:
        written = inspect.signature(command, eval_str=True)
        own = [p for p in written.parameters.values() if p.kind is not p.VAR_KEYWORD]
        given = [_parameter(OPTIONS[name], swept, usual.get(name) or _usual(OPTIONS[name])) for name in names]
        last = [p.replace(kind=p.KEYWORD_ONLY) for p in own if p.default is not p.empty]
        first = [p for p in own if p.default is p.empty]
        parameters = [*first, *given, *last]
        command.__signature__ = written.replace(parameters=parameters)  # pyright: ignore[reportFunctionMemberAccess]
        command.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        return command

    return give


def only(chosen: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The options of these names that were given."""
    return {name: chosen[name] for name in names if chosen.get(name) is not None}


def unswept(chosen: dict[str, Any]) -> dict[str, Any]:
    """The method options of a sweep that were given, under their own names."""
    names = {name: swept_name(option) if option.is_knob else name for name, option in METHOD_OPTIONS.items()}
    return {name: chosen[typed] for name, typed in names.items() if chosen.get(typed) is not None}


def run_of(chosen: dict[str, Any]) -> dict[str, Any]:
    """What a run is beside its pair and its method, as it was given; without a task the one of the pair.

    Raises as ``get_pair`` does.
    """
    from fsd_core.models.model_pairs import get_pair

    given = only(chosen, RUN)
    return {"task": get_pair(chosen.get("pair") or OPTIONS["pair"].default).tasks[0]} | given


def _documented(name: str) -> Any:
    option = OPTIONS[name]
    if option.type in (int, float):
        return number(flag(option), option.type, f"{option.help}.")
    return typer.Option(flag(option), help=f"{option.help}.")


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
SHORTEST_ID = 6  # characters


def _beginning_of_id(text: str) -> str:
    begins = text.strip().lower()
    if len(begins) < SHORTEST_ID:
        raise InvalidSetting(
            f"The id {text!r} is too short: expected at least its first {SHORTEST_ID} characters. `runs` lists the ids "
            "of runs and experiments."
        )
    return begins


Id = Annotated[
    str,
    typer.Argument(
        callback=_beginning_of_id,
        help=f"Id of a run or an experiment, as `runs` lists them; its first {SHORTEST_ID} characters are enough.",
    ),
]


def read_prompt(argument: str) -> str:
    """The prompt as given, or standard input for ``-``, less one line break at its end. Raises ``InvalidSetting``."""
    try:
        text = argument
        if argument == "-":  # a character has at most four bytes; one more tells that there are more
            text = sys.stdin.buffer.read(4 * LONGEST_PROMPT + 1).decode().removesuffix("\n").removesuffix("\r")
        text.encode()
    except UnicodeError:
        raise InvalidSetting("The prompt is not valid UTF-8: expected text in that encoding.") from None
    if len(text) > LONGEST_PROMPT:
        raise InvalidSetting(f"The prompt is too long: expected at most {LONGEST_PROMPT:,} characters.")
    return text
