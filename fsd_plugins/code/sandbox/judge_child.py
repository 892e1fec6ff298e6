"""The judge process: runs the benchmark's own tests, which reach the program only by proxies.

It writes ``R`` to the parent once both processes are confined, then ``passed``, ``ended`` (the program is gone) or
``failed: …``. If a process could not be confined, it writes ``E`` and the reason.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Collection, Iterator
from importlib import import_module
from typing import Any

from fsd_plugins.code.sandbox.channel import Channel, Ended, MalformedMessage
from fsd_plugins.code.sandbox.confinement import confine

_GROUPS = (BaseExceptionGroup, ExceptionGroup)  # they cannot be made without their members


class Proxy:
    """An object of the program that is not plain data. Operations on it run there, except comparison.

    It equals only itself, as the judge decides: an ``__eq__`` of the program is never called. For the same reason,
    ``in`` compares what iteration yields.
    """

    __slots__ = ("_number", "_program")

    def __init__(self, program: Program, number: int) -> None:
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_number", number)

    def __eq__(self, other: object) -> bool:
        return type(other) is Proxy and self._number == other._number

    def __hash__(self) -> int:
        return hash(self._number)

    def __getattr__(self, name: str) -> Any:
        return self._program.ask("getattr", self, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._program.ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._program.ask("delattr", self, name)

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return self._program.ask("call", self, positional, named)

    def __getitem__(self, key: object) -> Any:
        return self._program.ask("getitem", self, key)

    def __setitem__(self, key: object, value: object) -> None:
        self._program.ask("setitem", self, key, value)

    def __iter__(self) -> Iterator[Any]:
        iterator = self._program.ask("iter", self)
        return iterator if type(iterator) is Proxy else iter(iterator)

    def __next__(self) -> Any:
        return self._program.next(self)

    def __len__(self) -> int:
        return self._program.ask("len", self)

    def __bool__(self) -> bool:
        return self._program.ask("bool", self)

    def __str__(self) -> str:
        return self._program.ask("str", self)

    def __repr__(self) -> str:
        return self._program.ask("repr", self)


class Program:
    """The connection to the program."""

    def __init__(self, reader: int, writer: int) -> None:
        self.channel = Channel(reader, writer, _number_of, lambda number: Proxy(self, number))

    def ask(self, operation: str, *operands: object) -> Any:
        """Send a request and return its answer. Raises what the program raised, ``MalformedMessage`` and ``Ended``."""
        self.channel.send((operation, *operands))
        kind, *values = self._answer()
        if kind != "value":
            raise MalformedMessage("an answer that does not fit its request")
        return values[0]

    def next(self, iterator: Proxy) -> Any:
        """Return the next item of an iterator of the program. Raises ``StopIteration`` after the last one."""
        self.channel.send(("next", iterator))
        kind, *values = self._answer()
        if kind != "value":
            raise StopIteration
        return values[0]

    def name(self, name: str) -> Any:
        """Return the program's object of that name. Raises ``NameError`` if it has none."""
        self.channel.send(("name", name))
        kind, *values = self._answer()
        if kind != "value":
            raise NameError(f"name {name!r} is not defined")
        return values[0]

    def loaded(self) -> None:
        """Wait until the program's own code has run. Raises what it raised."""
        self._answer()

    def _answer(self) -> tuple:
        answer = self.channel.receive()
        match answer:
            case ("value", _) | ("absent",):
                return tuple(answer)
            case ("raised", [*names], str(text)) if names and all(type(name) is str for name in names):
                raise _exception(names, text)
        raise MalformedMessage("an answer of no known form")


class Names(dict[str, Any]):
    """Globals of the tests: what they and the given code define, then built-ins, then the names of the program.

    A standard library module that the program imported is this interpreter's own copy, because the tests rely on it.
    ``entry_points`` are the program's, even if Python has a built-in of that name.
    """

    def __init__(self, program: Program, entry_points: Collection[str]) -> None:
        super().__init__(__name__="__main__")
        self._program, self._entry_points = program, entry_points

    def __missing__(self, name: str) -> Any:
        if name in self._entry_points:
            return self._program.name(name)
        if hasattr(builtins, name):
            raise KeyError(name)  # Python then takes the built-in
        value = self._program.name(name)
        return import_module(name) if name in sys.stdlib_module_names else value


def _number_of(value: object) -> int:
    if type(value) is Proxy:
        return value._number
    raise TypeError(f"The tests cannot hand a '{type(value).__name__}' to the program: expected plain data.")


def _exception(names: list[str], text: str) -> BaseException:
    """Return an exception named like the first of the class names, of the first built-in kind among them."""
    candidates = (getattr(builtins, name, None) for name in names)
    kinds = (kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseException))
    base = next((kind for kind in kinds if kind not in _GROUPS), Exception)
    if issubclass(base, StopIteration | StopAsyncIteration | GeneratorExit):
        base = RuntimeError  # as in a generator: it would end a loop of the tests early and skip checks
    name = names[0] if names[0].isidentifier() else "Exception"
    new_class: Any = type(name, (base,), {"__str__": lambda self: text})
    error = new_class.__new__(new_class)  # not by a call, because some need more than a message
    error.args = (text,)
    return error


_LONGEST_TEXT = 300  # characters of a message


def main(job: dict[str, Any]) -> None:
    """Report the verdict on one program to the parent."""
    verdict = job["verdict"]
    program = Program(job["answers"], job["requests"])
    try:
        confine((job["answers"], job["requests"], verdict), job["parent"], job["seconds"], job["memory"])
        confined = program.channel.receive()
    except (OSError, Ended, MalformedMessage) as error:
        return _report(verdict, f"E{error or 'the process of the program is gone'}")
    if confined != ("confined",):
        return _report(verdict, f"E{confined[-1]}")
    _report(verdict, "R")
    try:
        program.loaded()
        names = Names(program, job["entry_points"])
        for title in ("given", "tests"):
            exec(compile(job[title], title, "exec", dont_inherit=True), names)
        program.ask("bool", True)  # it must be alive to the end
        _report(verdict, "passed")
    except Ended:
        _report(verdict, "ended")
    except BaseException as error:  # of the program or the tests, also SystemExit and the like
        _report(verdict, f"failed: {type(error).__name__}: {str(error)[:_LONGEST_TEXT]}")
    return None


def _report(verdict: int, text: str) -> None:
    os.write(verdict, text.encode("utf-8", "replace"))
