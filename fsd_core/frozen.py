"""What all values of a configuration share: they are frozen, written as JSON, and refused in one sentence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fsd_core.errors import InvalidSetting

_BOUNDS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
_KINDS = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "string_type": "a text",
}


Value = TypeVar("Value", bound="Frozen")


class Frozen(BaseModel):
    """Immutable, closed to unknown fields, and able to carry infinity through JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    def as_json(self) -> dict[str, Any]:
        """The value as plain JSON data; infinity as a string, which reads back."""
        return json.loads(self.model_dump_json())

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Builds the value; raises ``InvalidSetting`` with one sentence where pydantic would list its findings."""
        return built(cls, _in_words, values)


def option(
    default: Any,
    label: str,
    help: str,
    *,
    name: str = "",
    unit: str = "",
    plural: str = "",
    needs: Mapping[str, Sequence[str]] | None = None,
    aliases: Sequence[str] = (),
    before: Any = None,
    **bounds: Any,
) -> Any:
    """A field that the pages, the command line and Python offer.

    ``label``: its name on the pages. ``help``: what it does, without a full stop. ``name``: its name on the command
    line and in Python, where that is not the field's own name. ``unit``: the unit of its values. ``plural``: its label
    where several values are given. ``needs``: for other options, the values with one of which this one is read.
    ``aliases``: names that it had before. ``before``: for a field that is newer than stored settings, the value that
    they read it with. It is left out of what is stored, so that they keep their hashes. ``bounds``: keyword arguments
    of pydantic's ``Field``.
    """
    extra: dict[str, Any] = {
        "name": name, "unit": unit, "plural": plural, "needs": dict(needs or {}), "aliases": list(aliases),
        "before": before,
    }  # fmt: skip
    if before is not None:
        bounds["exclude_if"] = lambda value: value == before
    return Field(default=default, title=label, description=help, json_schema_extra=extra, **bounds)


def before_fields(model: type[BaseModel]) -> dict[str, Any]:
    """What fields stand for that are missing where a value was stored before they were there; see :func:`option`."""
    extras = {name: field.json_schema_extra for name, field in model.model_fields.items()}
    befores = {name: extra.get("before") for name, extra in extras.items() if isinstance(extra, dict)}
    return {name: before for name, before in befores.items() if before is not None}


def _in_words(path: Sequence[int | str]) -> str:
    """``Limit`` for the field at ``runs.0.limit``."""
    name = [str(part) for part in path if not isinstance(part, int)][-1].replace("_", " ")
    return name[0].upper() + name[1:]


def sentence(error: ValidationError, named: Callable[[Sequence[int | str]], str] = _in_words) -> str:
    """The first finding of a validation error, as a sentence. ``named``: what the user calls the field at a path."""
    first = error.errors()[0]
    context = first.get("ctx", {})
    if isinstance(cause := context.get("error"), ValidationError):
        return sentence(cause, named)
    if cause is not None:  # one of ours: already a sentence
        return str(cause)
    path = [part for part in first["loc"] if not str(part).startswith("function-")]
    where, value, message = named(path) if path else "the setting", first.get("input"), first["msg"]
    if first["type"] in _BOUNDS:
        bounds = {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in context.items()}
        return f"{where} is {value!r}: expected {_BOUNDS[first['type']].format(**bounds)}."
    if first["type"] in _KINDS:
        return f"{where} is {value!r}: expected {_KINDS[first['type']]}."
    if message.startswith("Input should be "):
        return f"{where} is {value!r}: expected {message.removeprefix('Input should be ')}."
    return f"{where}: {message.lower()}, got {value!r}."


def checked_words(model: type[Value], words: Mapping[str, str], **values: Any) -> Value:
    """Builds the value; raises ``InvalidSetting`` with one sentence. ``words``: what a user calls a field, by name."""
    return built(model, lambda path: words.get(str(path[-1])) or _in_words(path), values)


def built(model: type[Value], named: Callable[[Sequence[int | str]], str], values: Mapping[str, Any]) -> Value:
    """The value; raises ``InvalidSetting`` with one sentence. ``named``: what a user calls the field at a path."""
    try:
        return model(**values)
    except ValidationError as error:
        raise InvalidSetting(sentence(error, named)) from None


def content_hash(value: Frozen) -> str:
    """First 16 hex digits of the SHA-256 of a value's canonical JSON."""
    return text_hash(json.dumps(value.as_json(), sort_keys=True, separators=(",", ":")))


def text_hash(text: str) -> str:
    """First 16 hex digits of the SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def kind_of(part: type[Frozen]) -> str:
    """The ``kind`` of a rule, a drafter or a topology."""
    return part.model_fields["kind"].default


def changed(value: Frozen, *but: str) -> list[str]:
    """The fields of a value that differ from their defaults, in words: ``weight 0.3``. ``but``: those left out."""
    words = []
    for name, field in type(value).model_fields.items():
        own = getattr(value, name)
        if name not in ("kind", *but) and own != field.default:
            text = f"{own:g}" if isinstance(own, float) else str(own)
            words.append(f"{(field.title or name.replace('_', ' ')).lower()} {text}")
    return words
