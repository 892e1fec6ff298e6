"""Base class of all values of a configuration: frozen, stored as JSON, and rejected with one sentence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fsd_core.errors import InvalidSetting, Malformed, OutOfRange, UnknownChoice

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
        """Return the value as plain JSON data. Infinity becomes a string, which reads back."""
        return json.loads(self.model_dump_json())

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Build the value. Raises ``InvalidSetting`` with one sentence instead of pydantic's list of errors."""
        return built(cls, _field_label, values)


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
    """Return a field that the pages, the command line and Python offer.

    ``label``: its name on the pages. ``help``: what it does, without a full stop. ``name``: its name on the command
    line and in Python, if not the field's own. ``unit``: the unit of its values. ``plural``: its label for several
    values. ``needs``: by other option, the values for which this one is read. ``aliases``: its former names.
    ``before``: for a field newer than stored settings, the value that they are read with. That value is not stored, so
    that they keep their hashes. ``bounds``: keyword arguments of pydantic's ``Field``.
    """
    extra: dict[str, Any] = {
        "name": name, "unit": unit, "plural": plural, "needs": dict(needs or {}), "aliases": list(aliases),
        "before": before,
    }  # fmt: skip
    if before is not None:
        bounds["exclude_if"] = lambda value: value == before
    return Field(default=default, title=label, description=help, json_schema_extra=extra, **bounds)


def before_fields(model: type[BaseModel]) -> dict[str, Any]:
    """Return the values of fields that stored values lack because the fields are newer; see :func:`option`."""
    extras = {name: field.json_schema_extra for name, field in model.model_fields.items()}
    befores = {name: extra.get("before") for name, extra in extras.items() if isinstance(extra, dict)}
    return {name: before for name, before in befores.items() if before is not None}


def _field_label(path: Sequence[int | str]) -> str:
    """Return ``Limit`` for the field at ``runs.0.limit``."""
    name = [str(part) for part in path if not isinstance(part, int)][-1].replace("_", " ")
    return name[0].upper() + name[1:]


def sentence(error: ValidationError, named: Callable[[Sequence[int | str]], str] = _field_label) -> str:
    """Return the first error of a validation as a sentence. ``named`` returns the user's name of the field at a
    path."""
    return str(first_error(error, named))


def first_error(error: ValidationError, named: Callable[[Sequence[int | str]], str] = _field_label) -> InvalidSetting:
    """Return the first error of a validation: our own as it was raised, and any other as one of ours."""
    first = error.errors()[0]
    context = first.get("ctx", {})
    if isinstance(cause := context.get("error"), ValidationError):
        return first_error(cause, named)
    if cause is not None:  # our own error: already a sentence
        return cause if isinstance(cause, InvalidSetting) else InvalidSetting(str(cause))
    path = [part for part in first["loc"] if not str(part).startswith("function-")]
    field, value, message = named(path) if path else "the setting", first.get("input"), first["msg"]
    if first["type"] in _BOUNDS:
        bounds = {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in context.items()}
        return OutOfRange(f"{field} is {value!r}: expected {_BOUNDS[first['type']].format(**bounds)}.")
    if first["type"] in _KINDS:
        return Malformed(f"{field} is {value!r}: expected {_KINDS[first['type']]}.")
    if first["type"] == "literal_error":
        return UnknownChoice(f"{field} is {value!r}: expected {message.removeprefix('Input should be ')}.")
    if message.startswith("Input should be "):
        return Malformed(f"{field} is {value!r}: expected {message.removeprefix('Input should be ')}.")
    return Malformed(f"{field}: {message.lower()}, got {value!r}.")


def check_fields(model: type[Value], field_names: Mapping[str, str], **values: Any) -> Value:
    """Build the value. Raises ``InvalidSetting`` with one sentence. ``field_names``: the user's names, by field."""
    return built(model, lambda path: field_names.get(str(path[-1])) or _field_label(path), values)


def built(model: type[Value], named: Callable[[Sequence[int | str]], str], values: Mapping[str, Any]) -> Value:
    """Build the value. Raises ``InvalidSetting`` with one sentence. ``named`` returns the user's name of the field
    at a path."""
    try:
        return model(**values)
    except ValidationError as error:
        raise first_error(error, named) from None


def content_hash(value: Frozen) -> str:
    """Return the first 16 hex digits of the SHA-256 of a value's canonical JSON."""
    return text_hash(json.dumps(value.as_json(), sort_keys=True, separators=(",", ":")))


def text_hash(text: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of a text in UTF-8."""
    return text_digest(text)[:16]


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, as 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def kind_of(part: type[Frozen]) -> str:
    """Return the ``kind`` of a rule, a drafter or a topology."""
    return part.model_fields["kind"].default


def changed(value: Frozen, *but: str) -> list[str]:
    """Return the fields that differ from their defaults as text, such as ``weight 0.3``, without those in ``but``."""
    texts = []
    for name, field in type(value).model_fields.items():
        current = getattr(value, name)
        if name not in ("kind", *but) and current != field.default:
            text = f"{current:g}" if isinstance(current, float) else str(current)
            texts.append(f"{(field.title or name.replace('_', ' ')).lower()} {text}")
    return texts
