"""The program process: runs the model's code, then does what the tests ask of it.

Nothing that it says is a verdict. It answers requests of the judge, which compares the answers with the expected ones.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from fsd_plugins.code.sandbox.channel import Channel, Ended
from fsd_plugins.code.sandbox.confinement import confine

_FRAMES = 4  # our own, below the program's
_LONGEST_TEXT = 300  # characters of an exception's message

# Operations on an object that the judge can request.
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, positional, named: function(*positional, **named),
    "getattr": getattr, "setattr": setattr, "delattr": delattr, "getitem": operator.getitem,
    "setitem": operator.setitem, "iter": iter, "len": len, "bool": bool, "str": str, "repr": repr,
}  # fmt: skip


class Objects:
    """Numbers for the objects that stay here: one per object, however often it is sent."""

    def __init__(self) -> None:
        self._objects: list[object] = []
        self._numbers: dict[int, int] = {}

    def number_of(self, value: object) -> int:
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)  # keeps the object alive, so that its id stays unique
        return number

    def object_of(self, number: int) -> object:
        return self._objects[number]


def main(job: dict[str, Any]) -> None:
    """Run the program and serve requests until the judge hangs up or the process is killed."""
    objects = Objects()
    channel = Channel(job["requests"], job["answers"], objects.number_of, objects.object_of)
    try:
        confine((job["requests"], job["answers"]), job["parent"], job["seconds"], job["memory"])
    except OSError as error:
        return channel.send(("unconfined", str(error)))
    channel.send(("confined",))
    sys.setrecursionlimit(sys.getrecursionlimit() + _FRAMES)
    module = sys.modules["program"] = sys.modules["__main__"] = ModuleType("program")
    try:
        exec(compile(job["program"], "program", "exec", dont_inherit=True), module.__dict__)
        channel.send(("value", None))
    except BaseException as error:  # also SystemExit, which could end a program before its tests
        channel.send(_raised(error))
    while True:
        try:
            _serve(channel, module.__dict__)
        except Ended:
            return None


def _serve(channel: Channel, names: dict[str, Any]) -> None:
    """Answer one request. Raises ``Ended``."""
    operation, *operands = channel.receive()
    try:
        answer = _execute(names, operation, operands)
    except BaseException as error:  # whatever the program raises is its answer
        answer = _raised(error)
    try:
        channel.send(answer)
    except Exception as error:  # too large, or of classes that break when inspected
        channel.send(_raised(error))


def _execute(names: dict[str, Any], operation: str, operands: list[Any]) -> tuple:
    if operation == "name":
        return ("value", names[operands[0]]) if operands[0] in names else ("absent",)
    if operation != "next":
        return ("value", _OPERATIONS[operation](*operands))
    try:
        return ("value", next(*operands))
    except StopIteration:
        return ("absent",)


def _raised(error: BaseException) -> tuple:
    """Return the names of an exception's classes, nearest first, and its message."""
    try:
        text = str(error)[:_LONGEST_TEXT]
    except BaseException:  # of a class of the program
        text = ""
    return ("raised", [kind.__name__ for kind in type(error).__mro__][:20], text)
