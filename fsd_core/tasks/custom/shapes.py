"""The shapes that rows come in, and the fields of each that say what is asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import islice, product
from types import MappingProxyType
from typing import Any

from fsd_core.tasks.custom.conversation import as_messages, unused_fields, user_turns, without_answer
from fsd_core.tasks.custom.problems import LineError
from fsd_core.tasks.custom.tool_calls import is_list_of_tools

QUESTION_FIELDS = ("prompt", "messages", "conversations", "body", "turns")
"""of a line, of chats, of ShareGPT, of batches for an OpenAI server, and of MT-Bench, looked for in this order"""
_LIKE_OURS = 0.85
"""similarity from which a name is taken for a misspelt one"""
_LONGEST_FIELD_NAME = 40
"""characters that are shown of a name"""
_MOST_FIELDS_NAMED = 10
_MOST_NAMES_COMPARED = 100


@dataclass(frozen=True)
class FieldNames:
    """The fields that hold prompt, reference and id. An empty name stands for the usual one."""

    prompt: str = ""
    reference: str = ""
    id: str = ""


USUAL_FIELDS = FieldNames()


class FieldMissing(LineError):
    """A sentence on a row without the field that is looked for, and what fields it has."""


@dataclass(frozen=True)
class ShapedRow:
    """Question and answer of a row of any shape. Nothing is checked yet."""

    prompt: Any = None
    messages: Any = None
    """in place of a prompt, without the answer that they ended with"""
    reference: Any = None
    answer: Any = None
    """content of the answer that the messages ended with"""
    turns: Any = ()
    """user turns that follow, each asked when the one before is answered"""
    answers_left_out: int = 0
    """number of given answers in whose place stand those of the setting that is measured"""
    tools: Any = None
    """tools that may be called"""
    id: Any = None
    category: Any = None
    group: Any = None
    unused: Collection[str] = ()
    """names of fields that hold something and are not read"""


def shape(row: dict[str, Any], names: FieldNames = USUAL_FIELDS, *, all_turns: bool = False) -> ShapedRow:
    """Return the question of a row. A field that holds null counts as absent. With ``all_turns``, the user turns of
    messages are asked one after another. Raises ``LineError``."""
    given = without_nulls(row)
    for name in (names.prompt, names.reference, names.id):
        if name and name not in row:
            raise FieldMissing(f"It has no field {_shown(name)}: expected one of {_listed(row)}.")
    name = names.prompt or _question_field(given)
    asked, unused = given.get(name), given.keys() - {name}
    batch = without_nulls(asked) if name == "body" and isinstance(asked, dict) else None
    if batch is not None:
        name = next((each for each in ("messages", "prompt") if each in batch), "")
        if not name:
            raise FieldMissing(f"Its body has neither messages nor prompt, but {_listed(batch) or 'nothing'}.")
        asked, unused = batch.get(name), unused | {f"body.{each}" for each in batch.keys() - {name}}
    id_name = names.id or ("custom_id" if batch is not None and "id" not in given else "id")
    reference_name = names.reference or "reference"
    shared: dict[str, Any] = {"reference": given.get(reference_name), "id": given.get(id_name)}
    shared |= {own: given.get(own) for own in ("category", "group") if name != own}
    unused -= {id_name, reference_name, "category", "group"}
    holder, tools_name = (batch, "body.tools") if batch is not None else (given, "tools")
    if name != "tools" and is_list_of_tools(holder.get("tools")):
        shared["tools"] = holder["tools"]
        unused -= {tools_name}
    if name == "turns" and isinstance(asked, list) and asked:
        return _followed(ShapedRow(prompt=asked[0], unused=unused, **shared), asked[1:], reference_name)
    later = given["turns"] if name != "turns" and isinstance(given.get("turns"), list) else []
    unused -= {"turns"} if later else set()
    if name not in ("messages", "conversations") and not _holds_objects(asked):
        return _followed(ShapedRow(prompt=asked, unused=unused, **shared), later, reference_name)
    messages, answer = without_answer(as_messages(asked))
    messages, turns, left_out = user_turns(messages) if all_turns else (messages, [], 0)
    unused |= {f"{name}.{each}" for each in unused_fields(messages)}
    shaped = ShapedRow(messages=messages, answer=answer, answers_left_out=left_out, unused=unused, **shared)
    return _followed(shaped, [*turns, *later], reference_name)


def _followed(row: ShapedRow, turns: list[Any], reference_name: str) -> ShapedRow:
    """Return a row with the user turns that follow. No scorer reads several answers, so it has no reference then."""
    if not turns:
        return row
    unused = {*row.unused, reference_name} if row.reference is not None else row.unused
    return replace(row, turns=turns, reference=None, answer=None, unused=unused)


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that hold something. A table has each field in every row."""
    return {name: value for name, value in row.items() if value is not None}


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _question_field(given: dict[str, Any]) -> str:
    if "prompt" in given and "messages" in given:
        raise LineError("It has both prompt and messages: name the one that is asked (--prompt-field).")
    for name in QUESTION_FIELDS:
        if name in given and (name != "body" or isinstance(given[name], dict)):
            return name
    if not given:
        raise FieldMissing("It has neither prompt nor messages: expected one of them.")
    pairs = product(islice(given, _MOST_NAMES_COMPARED), QUESTION_FIELDS)
    likely = next(((name, own) for name, own in pairs if _alike(name, own)), None)
    rename = f", or rename {_shown(likely[0])} to {likely[1]}" if likely else ""
    raise FieldMissing(
        "It has neither prompt nor messages. Name the field that is asked with --prompt-field, one of "
        f"{_listed(given)}{rename}."
    )


def unused_sentence(unused: Collection[str], missing: Collection[str]) -> str:
    """Return the sentence on fields that are not read. ``missing`` are our own that the file lacks."""

    def described(name: str) -> str:
        likely = next((own for own in missing if _alike(name, own)), None)
        if name == "scorer":
            return f"{_shown(name)} (a first line of its own names the scorer)"
        return _shown(name) + (f" (is it {likely}?)" if likely else "")

    texts = {name: described(name) for name in islice(unused, _MOST_NAMES_COMPARED)}
    first = sorted(unused, key=lambda name: not texts.get(name, "").endswith(")"))
    return f"Fields that are not used: {_listed(first, texts)}."


def _alike(name: str, own: str) -> bool:
    return SequenceMatcher(None, name[: 2 * len(own)].lower(), own).ratio() >= _LIKE_OURS


def _listed(names: Collection[str], texts: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return names, or what ``texts`` says of them. Beyond the first ones they are counted."""
    listed = ", ".join(texts.get(name) or _shown(name) for name in islice(names, _MOST_FIELDS_NAMED))
    return listed + (f" and {len(names) - _MOST_FIELDS_NAMED:,} more" if len(names) > _MOST_FIELDS_NAMED else "")


def _shown(name: str) -> str:
    return repr(name[:_LONGEST_FIELD_NAME])
