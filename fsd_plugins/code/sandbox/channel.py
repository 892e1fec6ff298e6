"""Messages between program and judge over two pipes, of plain data alone.

Plain data as bytes, which program and judge exchange.

A value is one byte for its kind, then its content. Containers hold further values. None, bool, int, float, complex,
str, bytes, list, tuple, dict, set and frozenset cross as they are, and so do the types of ``_PARTS``. A subclass
crosses as the built-in type that it extends, with the data of that type, whatever methods it overrides. Any other
object is *opaque*: a number stands for it.

Bytes from the program are hostile. The decoder builds only these types, and limits both the length of a message and the
depth of its nesting.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

LARGEST = 1 << 23
"""bytes of one message"""
DEEPEST = 100
"""containers within containers"""

_CONTAINERS = {b"l": list, b"t": tuple, b"S": set, b"z": frozenset}
_CONSTANTS = {b"N": None, b"T": True, b"F": False}

# Standard library types that cross, by module and name: how to take one apart, and the types of its parts.
_INT, _TEXT, _LIST, _DICT = (int,), (str,), (list,), (dict,)
_PARTS: dict[tuple[str, str], tuple[Callable[[Any], tuple], tuple[tuple[type, ...], ...]]] = {
    ("builtins", "range"): (lambda x: (x.start, x.stop, x.step), (_INT, _INT, _INT)),
    ("builtins", "bytearray"): (lambda x: (bytes(x),), ((bytes,),)),
    ("builtins", "dict_keys"): (lambda x: (list(x),), (_LIST,)),
    ("builtins", "dict_items"): (lambda x: (list(x),), (_LIST,)),
    ("collections", "deque"): (lambda x: (list(x), x.maxlen), (_LIST, (int, type(None)))),
    ("collections", "Counter"): (lambda x: (dict(x),), (_DICT,)),
    ("collections", "OrderedDict"): (lambda x: (list(x.items()),), (_LIST,)),
    ("collections", "defaultdict"): (lambda x: (dict(x),), (_DICT,)),  # its factory may be the program's: it stays
    ("fractions", "Fraction"): (lambda x: (x.numerator, x.denominator), (_INT, _INT)),
    ("decimal", "Decimal"): (lambda x: (str(x),), (_TEXT,)),
}


class MalformedMessage(ValueError):
    """Bytes that no encoder wrote, or a value too large or too deeply nested to cross."""


def encode(value: object, number_of: Callable[[object], int]) -> bytes:
    """Return the bytes of ``value``. ``number_of`` gives an opaque object its number, or raises to refuse it.

    Raises ``MalformedMessage`` for a value beyond the limits.
    """
    out = bytearray()

    def sized(kind: bytes, content: bytes) -> None:
        out.extend(kind + len(content).to_bytes(4, "big") + content)

    def several(kind: bytes, count: int, values: Iterable[Any], depth: int) -> None:
        out.extend(kind + count.to_bytes(4, "big"))
        for each in values:
            put(each, depth + 1)

    def put(value: Any, depth: int) -> None:
        if depth > DEEPEST or len(out) > LARGEST:
            raise MalformedMessage(f"a value of more than {LARGEST} bytes, or nested deeper than {DEEPEST}")
        kind = type(value)  # not isinstance, which asks the object; also base methods, not the subclass's
        name = (kind.__module__, kind.__qualname__)
        if value is None or kind is bool:
            out.extend(b"N" if value is None else b"T" if value else b"F")
        elif name in _PARTS and kind is getattr(sys.modules.get(name[0]), name[1], kind):
            several(b"x", 3, (*name, _PARTS[name][0](value)), depth)
        elif issubclass(kind, int):
            sized(b"i", int.to_bytes(value, int.bit_length(value) // 8 + 1, "big", signed=True))
        elif issubclass(kind, float):
            out.extend(b"d" + struct.pack(">d", value))
        elif issubclass(kind, complex):
            out.extend(b"c" + struct.pack(">dd", value.real, value.imag))
        elif issubclass(kind, str):
            sized(b"s", str.encode(value, "utf-8", "surrogatepass"))
        elif issubclass(kind, bytes):
            sized(b"b", bytes.__getitem__(value, slice(None)))
        elif issubclass(kind, dict):
            several(b"m", 2 * dict.__len__(value), (each for pair in dict.items(value) for each in pair), depth)
        else:
            for tag, container in _CONTAINERS.items():
                if issubclass(kind, container):
                    return several(tag, container.__len__(value), container.__iter__(value), depth)
            out.extend(b"h" + number_of(value).to_bytes(4, "big"))
        return None

    put(value, 0)
    if len(out) > LARGEST:
        raise MalformedMessage(f"a value of more than {LARGEST} bytes")
    return bytes(out)


def decode(data: bytes, object_of: Callable[[int], object]) -> Any:
    """Return the value of ``data``. ``object_of`` returns the object of a number. Raises ``MalformedMessage``."""
    offset = 0

    def take(count: int) -> bytes:
        nonlocal offset
        offset += count
        if offset > len(data):
            raise MalformedMessage("a message that ends too soon")
        return data[offset - count : offset]

    def size() -> int:
        return int.from_bytes(take(4), "big")

    def get(depth: int) -> Any:
        if depth > DEEPEST:
            raise MalformedMessage(f"a value nested deeper than {DEEPEST}")
        kind = take(1)
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind == b"i":
            return int.from_bytes(take(size()), "big", signed=True)
        if kind == b"d":
            return struct.unpack(">d", take(8))[0]
        if kind == b"c":
            return complex(*struct.unpack(">dd", take(16)))
        if kind == b"s":
            return take(size()).decode("utf-8", "surrogatepass")
        if kind == b"b":
            return take(size())
        if kind in _CONTAINERS:
            return _CONTAINERS[kind]([get(depth + 1) for _ in range(size())])
        if kind == b"m":
            return {get(depth + 1): get(depth + 1) for _ in range(size() // 2)}
        if kind == b"x" and size() == 3:
            return _built(*(get(depth + 1) for _ in range(3)))
        if kind == b"h":
            return object_of(size())
        raise MalformedMessage(f"a value of the unknown kind {kind!r}")

    try:
        value = get(0)
    except MalformedMessage:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise MalformedMessage(f"a message that cannot be read ({type(error).__name__})") from None
    if offset != len(data):
        raise MalformedMessage("a message with something behind its end")
    return value


def _built(module: str, name: str, parts: tuple) -> Any:
    """Return one of ``_PARTS``, rebuilt. Raises ``LookupError``, ``TypeError`` or ``ValueError`` for invalid parts."""
    _, types = _PARTS[module, name]
    if len(parts) != len(types) or any(type(part) not in allowed for part, allowed in zip(parts, types, strict=True)):
        raise TypeError(f"parts of no {name}")
    match name:
        case "dict_keys":
            return dict.fromkeys(*parts).keys()
        case "dict_items":
            return dict(*parts).items()
        case "defaultdict":
            return import_module(module).defaultdict(None, *parts)
    return getattr(import_module(module), name)(*parts)  # imported when the first value crosses


class Ended(BaseException):
    """The other side has closed its pipe, as an ending process does. No ``except Exception`` may hide it."""


class Channel:
    """One end: reads from one descriptor and writes to another.

    ``number_of`` and ``object_of`` map opaque objects to numbers and back.
    """

    def __init__(
        self, reader: int, writer: int, number_of: Callable[[object], int], object_of: Callable[[int], object]
    ) -> None:
        self._reader, self._writer = reader, writer
        self._number_of, self._object_of = number_of, object_of

    def send(self, value: object) -> None:
        """Send a value. Raises ``Ended``, and ``MalformedMessage``, sending nothing, for a value that cannot cross."""
        content = encode(value, self._number_of)
        message = memoryview(len(content).to_bytes(4, "big") + content)
        try:
            while message:
                message = message[os.write(self._writer, message) :]
        except BrokenPipeError:
            raise Ended from None

    def receive(self) -> Any:
        """Return the next value. Raises ``MalformedMessage`` and ``Ended``."""
        length = int.from_bytes(self._read(4), "big")
        if length > LARGEST:
            raise MalformedMessage(f"a message of {length} bytes: expected at most {LARGEST}")
        return decode(self._read(length), self._object_of)

    def _read(self, count: int) -> bytes:
        content = bytearray()
        while len(content) < count:
            chunk = os.read(self._reader, count - len(content))
            if not chunk:
                raise Ended
            content += chunk
        return bytes(content)
