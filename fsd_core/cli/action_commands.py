"""Commands made from actions: their arguments, options and help, and what they print."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperGroup

from fsd_core.actions.action import Action, Ask, Told, actions_in, do
from fsd_core.cli import common, output
from fsd_core.settings import get_settings
from fsd_core.texts import Secret, upper_first


def add_commands(app: typer.Typer, actions: Iterable[Action[Any, Any]]) -> None:
    """Add the commands of actions to the application: ``pairs add`` to its group ``pairs``, and ``pairs`` as what the
    group does without a command."""
    groups: dict[str, Any] = {group.name or "": group.typer_instance for group in app.registered_groups}
    for action in actions:
        group, _, name = action.command.rpartition(" ")
        if action.command in groups:
            groups[action.command].callback(invoke_without_command=True)(command_of(action, whole=True))
        elif action.command:
            (groups[group] if group else app).command(name)(command_of(action))


def lazy_group(*modules: str) -> type[TyperGroup]:
    """Return a class of groups that have the commands of modules' actions too. The modules are imported when one of
    these, or the group's help, is asked for."""

    class Group(TyperGroup):
        _own: dict[str, Any]
        _is_whole = False

        @property
        def commands(self) -> dict[str, Any]:  # pyrefly: ignore[bad-override-mutable-attribute]
            if not self._is_whole:
                self._is_whole = True
                for action in (it for module in modules for it in actions_in(import_module(module))):
                    group, _, name = action.command.rpartition(" ")
                    if group == self.name:
                        made = typer.Typer(**common.TYPER_OPTIONS)
                        made.command(name)(command_of(action))
                        self._own[name] = typer.main.get_command(made)
            return self._own

        @commands.setter
        def commands(self, own: dict[str, Any]) -> None:
            self._own = own

    return Group


def command_of(action: Action[Any, Any], *, whole: bool = False) -> Any:
    """Return the function of an action's command, which Typer reads. ``whole``: of a group without a command."""

    def command(context: typer.Context, json: bool = False, **given: Any) -> None:
        if whole and context.invoked_subcommand is not None:
            return
        typed = {name: value for name, value in given.items() if value is not None} | secrets
        answer = do(action, Ask(get_settings(), operator=True), typed)
        told = action.tells(answer)
        for note in told.notes:
            output.say(note)
        if not json:
            _print(told)
        for one in (answer if isinstance(answer, list) else [answer]) if json else ():
            output.print_json({name: getattr(one, name) for name in action.fields} or one)
        if not told.passes:
            raise typer.Exit(1)

    secrets = {name: partial(_secret, name) for name, one in action.parameters.items() if one.kind == Secret}
    hints = {name: _typed(action, name) for name in action.parameters if name not in secrets}
    hints |= {} if action.answer is str else {"json": common.Json}
    defaults = {name: one.default for name, one in action.parameters.items()} | {"json": False}
    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hint)
        for name, hint in hints.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {"context": typer.Context, **hints}
    command.__name__, command.__doc__ = action.name, inspect.getdoc(action.function)
    return command


def _typed(action: Action[Any, Any], name: str) -> Any:
    """Return the type of a parameter with what Typer is told of it."""
    parameter = action.parameters[name]
    kind = get_args(parameter.kind)[0] if get_origin(parameter.kind) is Annotated else parameter.kind
    about = f"{upper_first(parameter.help)}." if parameter.help else None
    marks = [mark for it in getattr(parameter.kind, "__metadata__", ()) for mark in getattr(it, "metadata", ())]
    least, most = (next((getattr(it, way) for it in marks if hasattr(it, way)), None) for way in ("ge", "le"))
    made = typer.Argument if name in action.arguments else typer.Option
    return Annotated[kind, made(help=about, min=least, max=most)]


def _secret(name: str) -> str:
    """Return a secret typed twice on a terminal without echo, or else the first line of standard input."""
    if sys.stdin.isatty():
        return typer.prompt(upper_first(name), hide_input=True, confirmation_prompt=True)
    return sys.stdin.readline().rstrip("\n")


def _print(told: Told) -> None:
    if told.columns and (told.rows or not told.notes):
        output.print_table(told.columns, told.rows, figures=False)
    for line in told.lines:
        print(line)
