"""An action: a typed function with its role, its effects and what a command prints of its answer.

Its doors are made from it: a command (:mod:`fsd_core.cli.action_commands`), a call over HTTP and a tool of the MCP
server (:mod:`dashboard.ui.api_call`), and the buttons of the pages, which call it as a library does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, NamedTuple, ParamSpec, TypeVar, get_type_hints

from pydantic import BaseModel, ValidationError, create_model

from fsd_core.errors import Malformed, NotGiven, Refused, UnknownChoice
from fsd_core.frozen import first_error
from fsd_core.roles import LOCAL, Person, require, require_person
from fsd_core.texts import whole

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository

P = ParamSpec("P")
R = TypeVar("R")
_WIDTH = 120


class Ask:
    """Who asks for an action, and of which installation."""

    def __init__(
        self,
        settings: Settings,
        person: Person = LOCAL,
        repository: Repository | None = None,
        *,
        operator: bool = False,
    ) -> None:
        """``repository``: default, that of the settings, opened when it is first needed. ``operator``: whether it is
        the one who has the machine itself, at its command line."""
        self.settings, self.person, self.operator = settings, person, operator
        self._repository = repository

    @cached_property
    def repository(self) -> Repository:
        """The database. Raises ``DatabaseUnavailable`` and ``DatabaseOutdated``."""
        from fsd_core.worker.run_actions import open_repository

        return self._repository or open_repository(self.settings)

    @property
    def existing(self) -> Repository | None:
        """The database, or ``None`` if there is none yet, as where a command is the first one."""
        from fsd_core.worker.run_actions import has_database

        return self.repository if self._repository or has_database(self.settings) else None


class Effects(NamedTuple):
    """Effects of an action beside its answer."""

    writes: bool = False
    destroys: bool = False
    """whether something that was stored is lost"""
    repeatable: bool = True
    """whether the same once more changes nothing further"""
    elsewhere: bool = False
    """whether it asks another site"""


class Told(NamedTuple):
    """What a command prints of an answer: the notes to standard error, then a table and lines to standard output."""

    lines: Sequence[str] = ()
    notes: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    passes: bool = True
    """whether the command exits with 0, not with 1"""


def said(sentence: str) -> Told:
    """Return what a command prints of an answer that is a sentence."""
    return Told([sentence])


@dataclass(frozen=True)
class Action(Generic[P, R]):
    """An action. Called with who asks, it checks the role and does it; the errors are those of its function."""

    function: Callable[Concatenate[Ask, P], R]
    command: str
    """its words on the command line, such as ``pairs add``; empty for an action without a command"""
    role: str
    doing: str
    """such as "Adding models", for the sentence that refuses it; empty where the function asks for a role itself"""
    people: bool
    """whether it is refused to tokens"""
    known: bool
    """whether it is refused to whoever is not signed in either, but for the operator"""
    effects: Effects
    tells: Callable[[Any], Told]
    arguments: tuple[str, ...]
    """parameters that a command takes without a name"""
    fields: tuple[str, ...]
    """attributes of its answers that the command prints as JSON; empty: the answers are JSON"""

    def __call__(self, ask: Ask, *args: P.args, **named: P.kwargs) -> R:
        self.check_role(ask.person, ask.operator)
        return self.function(ask, *args, **named)

    def check_role(self, person: Person, operator: bool = False) -> None:
        """Raise ``Refused`` unless the person has the role that it needs."""
        if self.doing:
            (require_person if self.people else require)(person, self.role, self.doing)
        if self.known and not (person.known or operator):
            raise Refused(f"{self.doing} is for people with an account: sign in first.")

    @property
    def name(self) -> str:
        return self.function.__name__

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters by name, without who asks."""
        hints = get_type_hints(self.function, include_extras=True)
        listed = [*inspect.signature(self.function).parameters.values()][1:]
        return {one.name: Parameter(hints[one.name], one.default) for one in listed}

    @cached_property
    def answer(self) -> Any:
        """The type of the answer."""
        return get_type_hints(self.function)["return"]

    @cached_property
    def about(self) -> str:
        """What it does, with the role that it needs and what each parameter is."""
        summary, _, more = (inspect.getdoc(self.function) or "").partition("\n\n")
        needs = f" For people with the role {self.role}." if self.people else f" Needs the role {self.role}."
        summary += needs * bool(self.doing)
        listed = [f"    {name}: {one.help}" for name, one in self.parameters.items()]
        return "\n\n".join(filter(None, (summary, more, "\n".join(["Args:", *listed] if listed else []))))


def actions_in(module: ModuleType) -> list[Action[Any, Any]]:
    """Return the actions of a module, in the order in which they stand there."""
    named = (value for value in vars(module).values() if isinstance(value, Action))
    return [it for it in named if it.function.__module__ == module.__name__]


class Parameter(NamedTuple):
    """A parameter of an action: its type, which holds what is said of it, and its default."""

    kind: Any
    default: Any

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def help(self) -> str:
        """What it is, in a few words."""
        return next((it for it in getattr(self.kind, "__metadata__", ()) if isinstance(it, str)), "")


def action(
    command: str = "",
    *,
    role: Literal["", "viewer", "author", "reviewer", "admin"] = "",
    doing: str = "",
    people: bool = False,
    known: bool = False,
    writes: bool = False,
    destroys: bool = False,
    repeatable: bool = False,
    elsewhere: bool = False,
    tells: Callable[[Any], Told] = said,
    arguments: Sequence[str] | None = None,
    fields: Sequence[str] = (),
) -> Callable[[Callable[Concatenate[Ask, P], R]], Action[P, R]]:
    """Make an action of a function whose first parameter is who asks (``Ask``).

    Its docstring says what it does; a text in the ``Annotated`` type of a parameter says what that is. ``tells``:
    default, the answer is a sentence. ``arguments``: default, the first parameter that must be given. The other
    arguments are the fields of :class:`Action` and :class:`Effects`; what does not write is repeatable.
    """

    def make(function: Callable[Concatenate[Ask, P], R]) -> Action[P, R]:
        signature = [*inspect.signature(function).parameters.values()][1:]
        first = [one.name for one in signature if one.default is inspect.Parameter.empty][:1]
        effects = Effects(writes or destroys, destroys, repeatable or not (writes or destroys), elsewhere)
        positional = tuple(first if arguments is None else arguments)
        whom = role, doing, people or known, known
        return Action(function, command, *whom, effects, tells, positional, tuple(fields))

    return make


def do(action: Action[Any, R], ask: Ask, given: Mapping[str, Any]) -> R:
    """Do what a program or a command asks for: the role is checked, then the arguments.

    Raises ``InvalidSetting`` for those that are missing, unknown or of another type, and what the action raises.
    """
    action.check_role(ask.person, ask.operator)
    if whole(dict(given)) != given:
        raise Malformed("A text of the arguments holds NUL or half of a character (a lone surrogate): leave it out.")
    expected = action.parameters
    if unknown := [name for name in given if name not in expected]:
        raise UnknownChoice(f"There is no argument '{unknown[0][:40]}': expected {', '.join(expected) or 'none'}.")
    if missing := [name for name, one in expected.items() if one.required and name not in given]:
        raise NotGiven(f"The argument '{missing[0]}' is missing: give it.")
    try:
        read = arguments_of(action).model_validate(dict(given))
    except ValidationError as error:
        raise first_error(error, lambda path: " ".join(map(str, path))) from None
    return action.function(ask, **{name: getattr(read, name) for name in read.model_fields_set})


@lru_cache(maxsize=256)
def arguments_of(action: Action[Any, Any]) -> type[BaseModel]:
    """Return the model that validates an action's arguments."""
    fields: Any = {name: (one.kind, None) for name, one in action.parameters.items()}
    return create_model(action.name, **fields)
