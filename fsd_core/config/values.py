"""What all values of a configuration share: they are frozen, told as JSON, and refused in one sentence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from fsd_core.errors import InvalidSetting

_BOUNDS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}


class Frozen(BaseModel):
    """Immutable, closed to unknown fields, and able to carry infinity through JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    def as_json(self) -> dict[str, Any]:
        """The value as plain JSON data; infinity as a string, which reads back."""
        return json.loads(self.model_dump_json())

    @classmethod
    def checked(cls, **values: Any):
        """Builds the value; raises ``InvalidSetting`` with one sentence where pydantic would list its findings."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise InvalidSetting(sentence(error)) from None


_WORDS = {
    "length": "draft length",
    "top_k": "top-k",
    "top_p": "top-p",
    "max_new_tokens": "longest answer",
    "total_tokens": "tree tokens",
}


def _in_words(path: Sequence[int | str]) -> str:
    """``Draft length`` for the field at ``decodings.0.topology.length``."""
    name = [str(part) for part in path if not isinstance(part, int)][-1]
    words = _WORDS.get(name, name.replace("_", " "))
    return words[0].upper() + words[1:]


def sentence(error: ValidationError, named: Callable[[Sequence[int | str]], str] = _in_words) -> str:
    """The first finding of a validation error, as a sentence. ``named``: what the user calls the field at a path."""
    first = error.errors()[0]
    context = first.get("ctx", {})
    if (cause := context.get("error")) is not None:  # one of ours: already a sentence
        return str(cause)
    path = [part for part in first["loc"] if not str(part).startswith("function-")]
    where, value, message = named(path) if path else "the setting", first.get("input"), first["msg"]
    if first["type"] in _BOUNDS:
        return f"{where} is {value!r}: expected {_BOUNDS[first['type']].format(**context)}."
    if message.startswith("Input should be "):
        return f"{where} is {value!r}: expected {message.removeprefix('Input should be ')}."
    return f"{where}: {message.lower()}, got {value!r}."


def content_hash(value: Frozen) -> str:
    """First 16 hex digits of the SHA-256 of a value's canonical JSON."""
    canonical = json.dumps(value.as_json(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def members(union: Any) -> dict[str, type[Any]]:
    """The classes of a discriminated union by their ``kind``, in its order."""
    return {member.model_fields["kind"].default: member for member in get_args(get_args(union)[0])}
