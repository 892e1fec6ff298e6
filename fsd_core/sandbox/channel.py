"""Messages between program and judge over two pipes: four bytes of length, then a value."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from fsd_core.sandbox.wire_values import LARGEST, MalformedMessage, decode, encode


class Ended(BaseException):
    """The other side has closed its pipe, as an ending process does. No ``except Exception`` may hide it."""


class Channel:
    """One end: reads from one descriptor and writes to another.

    ``number_of`` and ``object_of`` map opaque objects to numbers and back. See :mod:`.wire_values`.
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
