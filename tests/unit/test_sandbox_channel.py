"""What the program and the judge can tell each other: plain data as it was, and nothing else."""

from __future__ import annotations

import collections
import enum
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from fsd_plugins.code.sandbox.channel import DEEPEST, LARGEST, MalformedMessage, decode, encode

PLAIN: list[Any] = [
    None, True, False, 0, -1, 255, 256, -(1 << 63), 10**30, -(10**5000), 1 << 100_000, 0.0, -0.0, 1e-310, 0.1,
    float("inf"), complex(-0.0, 2), "", "text", "é\u202e\0", "\ud800 alone", b"", b"\xff\0", [], [1, [2.0, ["3"]]],
    (), (1, (2,)), {}, {"a": [1], (1, 2): {3: 4}}, {3: 1, 1: 2}, set(), {1, "a"}, frozenset({1}), {frozenset({1}): 1},
    range(0, 10, -3), bytearray(b"a"), collections.deque([1, 2], 5), collections.Counter("abca"),
    collections.OrderedDict([("b", 1), ("a", 2)]), collections.defaultdict(None, {1: 2}), Fraction(1, 3),
    Decimal("1.50"), {"a": 1}.keys(), {"a": 1}.items(),
]  # fmt: skip


def refused(value: object) -> int:
    raise TypeError("not plain")


def crossed(value: object, objects: Callable[[object], int] = refused) -> Any:
    return decode(encode(value, objects), lambda number: ("object", number))


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_plain_data_is_what_it_was(value: object) -> None:
    again = crossed(value)
    assert again == value
    assert type(again) is type(value)
    assert isinstance(value, int | set) or repr(again) == repr(value)  # signs, order, precision


def test_a_number_that_is_none_stays_so() -> None:
    assert crossed(float("nan")) != crossed(float("nan"))


class Sly(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class SlyText(str):
    def __eq__(self, other: object) -> bool:
        return True

    def encode(self, *_: object) -> bytes:  # type: ignore[override]
        return b"other"

    __hash__ = str.__hash__


class SlyList(list):
    def __iter__(self) -> Any:
        return iter([9])

    def __eq__(self, other: object) -> bool:
        return True


class Level(enum.IntEnum):
    HIGH = 7


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "plain"),
    [(Sly(3), 3), (SlyText("a"), "a"), (SlyList([1, 2]), [1, 2]), (Level.HIGH, 7), (Point(1, 2), (1, 2))],
)
def test_a_subclass_crosses_as_the_data_of_its_built_in_type(value: object, plain: object) -> None:
    assert type(crossed(value)) is type(plain)
    assert crossed(value) == plain


def test_other_objects_cross_as_numbers() -> None:
    assert crossed([1, object()], lambda value: 4) == [1, ("object", 4)]
    with pytest.raises(TypeError, match="not plain"):
        crossed(object())


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def endless() -> list:
    value: list = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value", [nested(DEEPEST + 1), endless(), "x" * (LARGEST + 1), [0] * LARGEST, 1 << (8 * LARGEST)],
    ids=["deep", "endless", "text", "list", "int"],
)  # fmt: skip
def test_what_is_too_large_or_too_deep_does_not_cross(value: object) -> None:
    with pytest.raises(MalformedMessage, match="a value of more than"):
        encode(value, refused)


def test_as_deep_as_may_be() -> None:
    assert crossed(nested(DEEPEST)) == nested(DEEPEST)


def message(module: str, name: str, *parts: object) -> bytes:
    """What only a forger writes: a type of the standard library with parts of his own."""
    return b"x\0\0\0\3" + b"".join(encode(part, refused) for part in (module, name, parts))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"?", b"i\0\0\0\5a", b"s\0\0\0\1\xff", b"l\xff\xff\xff\xff", b"m\0\0\0\2S\0\0\0\0N", b"NN", b"h\0",
        b"l\0\0\0\1" * (DEEPEST + 2) + b"N", message("os", "system", "true"), message("builtins", "exec", "1"),
        message("builtins", "bytearray", 1 << 40), message("collections", "deque", range(1 << 60), None),
        message("fractions", "Fraction", "1e999999999"), message("fractions", "Fraction", 1, 0),
        message("decimal", "Decimal", "x"), message("builtins", "range", 1, 2), message("builtins", "range", 1, 2, 0),
        message("builtins", "dict_keys", [[]]), b"x\0\0\0\2",
    ],
)  # fmt: skip
def test_bytes_that_nobody_encoded_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(data, lambda number: number)


def test_no_bytes_do_anything_but_decode_or_be_refused() -> None:
    generator = random.Random(0)
    kinds = b"NTFidcsblmtSzxh\0\0\0\0\1\2\3\xff"
    whole = [encode(value, refused) for value in PLAIN if not isinstance(value, int) or value.bit_length() < 99]
    for _ in range(20_000):
        if generator.random() < 0.5:
            data = bytes(generator.choices(kinds, k=generator.randrange(30)))
        else:
            data = bytearray(generator.choice(whole))
            data[generator.randrange(len(data))] = generator.choice(kinds)
        try:
            decode(bytes(data), lambda number: number)
        except MalformedMessage:
            continue
