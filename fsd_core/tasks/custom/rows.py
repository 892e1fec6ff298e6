"""One row of a task file: a prompt or a conversation, with its reference if known."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import islice, product
from typing import Any, NamedTuple

from fsd_core.models.conversation import TOOLS, Message, Messages, ToolMessage, fields_of
from fsd_core.tasks.custom.scorers import Scorer

MOST_PROBLEMS_LISTED = 50
"""problems listed; the others are only counted"""


class LineError(Exception):
    """A sentence on what is wrong with a line, or with the whole file."""


class LineProblem(NamedTuple):
    """A problem, as a sentence that names the line if there is one."""

    line: int | None
    """from 1"""
    sentence: str


@dataclass
class Findings:
    """The problems of a file so far."""

    unit: str = "line"
    """unit of a number: a line, or a row of a file that is not read line by line"""
    problems: list[LineProblem] = field(default_factory=list)

    def wrong(self, line: int | None, sentence: str) -> None:
        """Add a problem of that line, or of the whole file."""
        where = "" if line is None else f"{self.unit.capitalize()} {line:,}: "
        self.problems.append(LineProblem(line, where + sentence))

    def listed(self) -> tuple[LineProblem, ...]:
        """Return the first problems in the order of the file."""
        return tuple(sorted(self.problems, key=lambda problem: problem.line or 0)[:MOST_PROBLEMS_LISTED])


MOST_TOOLS = 128
"""of a line, and calls of a message"""
READ_FIELDS = {"assistant": {"tool_calls"}, "tool": {"name", "tool_call_id"}}
"""fields beside role and content that are read, by role"""


def is_list_of_objects(value: Any) -> bool:
    """Return whether a value is one, as messages and tools are."""
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def checked_tools(tools: list[dict[str, Any]]) -> ToolMessage:
    """Return the tools of a conversation. Raises ``LineError``."""
    if len(tools) > MOST_TOOLS:
        raise LineError(f"It has {len(tools):,} tools: expected at most {MOST_TOOLS}.")
    for number, tool in enumerate(tools, 1):
        function = tool.get("function") if tool.get("type", "function") == "function" else None
        if not isinstance(function, dict) or not _is_name(function.get("name")):
            raise LineError(
                f"Tool {number} is no function with a name: expected "
                '{"type": "function", "function": {"name": "…"}}.'
            )
    return ToolMessage(TOOLS, "", _dumped({"tools": tools}))


def message_fields(number: int, role: str, message: dict[str, Any]) -> str:
    """Return the fields of a message beside role and content, as JSON; empty for nothing. Raises ``LineError``."""
    if role == "assistant" and message.get("tool_calls"):
        calls = message["tool_calls"]
        if not isinstance(calls, list) or len(calls) > MOST_TOOLS:
            raise LineError(
                f"The tool_calls of message {number} are no list of at most {MOST_TOOLS}: expected objects."
            )
        return _dumped({"tool_calls": [_checked_call(number, call) for call in calls]})
    read = {name: message[name] for name in sorted(READ_FIELDS.get(role, ())) if role == "tool" and message.get(name)}
    if any(not _is_name(value) for value in read.values()):
        raise LineError(
            f"Message {number} has a name or tool_call_id that is no text: expected one in quotation marks."
        )
    return _dumped(read) if read else ""


def _checked_call(number: int, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    arguments = _parsed(function.get("arguments") or {}) if isinstance(function, dict) else None
    if not isinstance(function, dict) or not _is_name(function.get("name")) or not isinstance(arguments, dict):
        raise LineError(
            f"Message {number} has a call that is none: expected "
            '{"type": "function", "function": {"name": "…", "arguments": {…}}}, the arguments as an object or its JSON.'
        )
    given = {"id": call["id"]} if _is_name(call.get("id")) else {}
    return given | {"type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _parsed(value: Any) -> Any:
    """Return the value in a text of JSON. Other values are unchanged, and so is a text that is none."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _dumped(value: dict[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if "\\u0000" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise LineError("Its tools hold the character NUL, or half of a character: leave it out.")
    return text


MOST_MESSAGES = 100
_FIRST = ("system", "developer")
_BEFORE = {"user": ("", "assistant"), "assistant": ("user", "tool"), "tool": ("assistant", "tool")}
"""roles, and what each may follow; nothing stands before the first user"""
_ROLES = (*_FIRST, *_BEFORE)
_SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "observation": "tool"}


def as_messages(value: Any) -> Any:
    """Return messages of ShareGPT, which have ``from`` and ``value``, with role and content. Others are unchanged."""
    return [_as_message(each) for each in value] if isinstance(value, list) else value


def _as_message(message: Any) -> Any:
    if not isinstance(message, dict) or not {"from", "value"} <= set(message) or message.get("role") is not None:
        return message
    rest = {name: value for name, value in message.items() if name not in ("from", "value")}
    role = message["from"]
    return rest | {"role": _SHAREGPT_ROLES.get(role, role) if isinstance(role, str) else role,
                   "content": message["value"]}  # fmt: skip


def without_answer(messages: Any) -> tuple[Any, Any]:
    """Return a conversation without the answer that it ends with, and that answer's content, or ``None``."""
    last = messages[-1] if isinstance(messages, list) and len(messages) > 1 else None
    if isinstance(last, dict) and last.get("role") == "assistant" and not last.get("tool_calls"):
        return messages[:-1], last.get("content")
    return messages, None


def unused_fields(messages: Any) -> set[str]:
    """Return the fields of messages that are not read and hold something."""
    objects = [each for each in messages if isinstance(each, dict)] if isinstance(messages, list) else []
    return {
        name
        for each in objects
        for name, value in each.items()
        if value and name not in ("role", "content") and name not in READ_FIELDS.get(str(each.get("role")), ())
    }


def user_turns(messages: Any) -> tuple[Any, list[Any], int]:
    """Return a conversation up to its first user turn, the contents of its later ones, and the number of messages
    between them, which are left out. Raises ``LineError`` for a conversation with tools.
    """
    objects = messages if isinstance(messages, list) and all(isinstance(each, dict) for each in messages) else []
    turns = [place for place, message in enumerate(objects) if message.get("role") == "user"]
    if len(turns) < 2:
        return messages, [], 0
    if any(message.get("role") == "tool" or message.get("tool_calls") for message in objects):
        raise LineError(
            "It has calls of tools or their results, which belong to the given answers: its user turns cannot be asked "
            "one after another."
        )
    behind = objects[turns[0] + 1 :]
    later = [message.get("content") for message in behind if message.get("role") == "user"]
    return objects[: turns[0] + 1], later, len(behind) - len(later)


def checked_turns(value: Any) -> tuple[str, ...]:
    """Return the later user turns of a line. Raises ``LineError``."""
    if not isinstance(value, list) or len(value) > MOST_MESSAGES:
        raise LineError(f"Its turns are no list of at most {MOST_MESSAGES} texts: expected what the user says in each.")
    return tuple(checked_text(f"turn {n}", text_of(f"Turn {n}", turn)) for n, turn in enumerate(value, 1))


def checked_conversation(value: Any) -> str | Messages:
    """Return the conversation, or a prompt if it is a single user message. Raises ``LineError``."""
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_MESSAGES:
        raise LineError(f"Its messages are no list of 1 to {MOST_MESSAGES}: expected objects with role and content.")
    messages = [_checked_message(number, message) for number, message in enumerate(value, 1)]
    turns = [message[0] for message in messages]
    _check_order(turns[1:] if turns[0] in _FIRST else turns)
    return messages[0][1] if len(messages) == 1 else tuple(messages)


def _checked_message(number: int, message: Any) -> Message:
    if not isinstance(message, dict) or "role" not in message:
        raise LineError(f"Message {number} has no role: expected an object with role and content.")
    role, content = message["role"], message.get("content")
    if role not in _ROLES:
        raise LineError(f"The role of message {number} is not known: expected one of {', '.join(_ROLES)}.")
    fields = message_fields(number, role, message)
    if content is None and not (role == "assistant" and fields):
        raise LineError(f"Message {number} has no content: expected a text.")
    content = "" if content is None else text_of(f"Message {number}", content)
    if not (role == "assistant" and fields and content == ""):
        content = checked_text(f"message {number}", content)
    return ToolMessage(role, content, fields) if fields else (role, content)


def _check_order(turns: Sequence[str]) -> None:
    before = ["", *turns[:-1]]
    fits = all(earlier in _BEFORE.get(role, ()) for earlier, role in zip(before, turns, strict=False))
    if not fits or not turns or turns[-1] == "assistant":
        raise LineError(
            "Its messages are in no order that a model can go on with: expected user and assistant in turn, the last "
            "one of user or tool, and before them at most one of system or developer. A tool follows the assistant."
        )


def text_of(label: str, content: Any) -> Any:
    """Return the text of a content that is a list of parts. Any other content is unchanged. Raises ``LineError``."""
    if not isinstance(content, list):
        return content
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            raise LineError(f"{label} has a part of type {str(kind)[:40]!r}: expected parts of type 'text' alone.")
    return "\n".join(part["text"] for part in content)


def checked_text(label: str, value: Any) -> str:
    """Return a text that says something and can be stored. Raises ``LineError``."""
    if not isinstance(value, str):
        raise LineError(f"Its {label} is no text: expected one in quotation marks.")
    if not value.strip():
        raise LineError(f"Its {label} is empty: write at least one word.")
    return storable(label, value)


def storable(label: str, value: str) -> str:
    """Return a text that every database can store. Raises ``LineError``."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise LineError(f"Its {label} holds half of a character (a lone surrogate): write the whole one.") from None
    if "\0" in value:
        raise LineError(f"Its {label} holds the character NUL: leave it out.")
    return value


class Field(NamedTuple):
    """The names of a field."""

    usual: tuple[str, ...]
    """read without being named, looked for in this order"""
    likely: tuple[str, ...] = ()
    """probably it in files of other people, whatever their capitals, looked for in this order"""


FIELDS = {
    # of a line, of chats, of ShareGPT, of batches for an OpenAI server, and of MT-Bench
    "prompt": Field(
        ("prompt", "messages", "conversations", "body", "turns"),
        ("question", "instruction", "query", "input", "problem", "request", "user", "text", "frage", "aufgabe"),
    ),
    "reference": Field(
        ("reference",),
        ("answer", "reference_answer", "solution", "label", "target", "expected", "gold", "response", "completion",
         "output", "antwort", "lösung"),
    ),
    "id": Field(("id",)),
}  # fmt: skip
_LIKE_OURS = 0.85
"""similarity from which a name is taken for a misspelt one"""
_LONGEST_FIELD_NAME = 40
"""characters that are shown of a name"""
_MOST_FIELDS_NAMED = 10
_MOST_NAMES_COMPARED = 100


class FieldNames(NamedTuple):
    """The fields that hold prompt, reference and id. An empty name stands for the usual one."""

    prompt: str = ""
    reference: str = ""
    id: str = ""


USUAL_FIELDS = FieldNames()


class FieldMissing(LineError):
    """A sentence on a row without the field that is looked for, and what fields it has."""


@dataclass
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
    unused: set[str] = field(default_factory=set)
    """names of fields that hold something and are not read"""


def shape(row: dict[str, Any], names: FieldNames = USUAL_FIELDS, *, all_turns: bool = False) -> ShapedRow:
    """Return the question of a row. A field that holds null counts as absent. With ``all_turns``, the user turns of
    messages are asked one after another. Raises ``LineError``."""
    given = without_nulls(row)
    for name in names:
        if name and name not in row:
            raise FieldMissing(f"It has no field {_shown(name)}: expected one of {_listed(row)}.")
    name = names.prompt or _question_field(given)
    asked, unused = given.get(name), given.keys() - {name}
    holder, prefix = given, ""
    if name == "body" and isinstance(asked, dict):
        holder, prefix = without_nulls(asked), "body."
        name = next((each for each in ("messages", "prompt") if each in holder), "")
        if not name:
            raise FieldMissing(f"Its body has neither messages nor prompt, but {_listed(holder) or 'nothing'}.")
        asked, unused = holder[name], unused | {prefix + each for each in holder.keys() - {name}}
    id_name = names.id or ("custom_id" if prefix and "id" not in given else "id")
    reference_name = names.reference or "reference"
    category, group = (given.get(own) if own != name else None for own in ("category", "group"))
    shaped = ShapedRow(reference=given.get(reference_name), id=given.get(id_name), category=category, group=group)
    shaped.unused = unused - {id_name, reference_name, "category", "group"}
    if name != "tools" and is_list_of_objects(tools := _parsed(holder.get("tools"))):
        shaped.tools = tools
        shaped.unused -= {f"{prefix}tools"}
    turns = given["turns"] if name != "turns" and isinstance(given.get("turns"), list) else []
    if turns:
        shaped.unused -= {"turns"}
    if name == "turns" and isinstance(asked, list) and asked:
        shaped.prompt, *turns = asked
    elif name in ("messages", "conversations") or is_list_of_objects(asked):
        shaped.messages, shaped.answer = without_answer(as_messages(asked))
        if all_turns:
            shaped.messages, later, shaped.answers_left_out = user_turns(shaped.messages)
            turns = [*later, *turns]
        shaped.unused |= {f"{name}.{each}" for each in unused_fields(shaped.messages)}
    else:
        shaped.prompt = asked
    if turns:  # no scorer reads several answers
        shaped.unused |= {reference_name} if shaped.reference is not None else set()
        shaped.turns, shaped.reference, shaped.answer = turns, None, None
    return shaped


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that hold something. A table has each field in every row."""
    return {name: value for name, value in row.items() if value is not None}


def _question_field(given: dict[str, Any]) -> str:
    if "prompt" in given and "messages" in given:
        raise LineError("It has both prompt and messages: name the one that is asked (--prompt-field).")
    for name in FIELDS["prompt"].usual:
        if name in given and (name != "body" or isinstance(given[name], dict)):
            return name
    if not given:
        raise FieldMissing("It has neither prompt nor messages: expected one of them.")
    pairs = product(islice(given, _MOST_NAMES_COMPARED), FIELDS["prompt"].usual)
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
    return f"Fields that are not used: {_listed(first, lambda name: texts.get(name) or _shown(name))}."


def _alike(name: str, own: str) -> bool:
    return SequenceMatcher(None, name[: 2 * len(own)].lower(), own).ratio() >= _LIKE_OURS


def _shown(name: str) -> str:
    return repr(name[:_LONGEST_FIELD_NAME])


def _listed(names: Collection[str], shown: Callable[[str], str] = _shown) -> str:
    """Return names as they are ``shown``. Beyond the first ones they are counted."""
    listed = ", ".join(map(shown, islice(names, _MOST_FIELDS_NAMED)))
    return listed + (f" and {len(names) - _MOST_FIELDS_NAMED:,} more" if len(names) > _MOST_FIELDS_NAMED else "")


LONGEST_REFERENCE = 10_000
"""characters"""
_LONGEST_ID = 100
"""characters"""


@dataclass(frozen=True)
class TaskLine:
    """A valid line."""

    model_input: str | Messages
    """the prompt, or a conversation of more than one message"""
    reference: str | None
    """as written"""
    id: str | None
    category: str = ""
    group: str = ""
    """the prompts that it depends on, such as those of one template"""
    turns: tuple[str, ...] = ()
    """user turns that follow, each asked when the one before is answered"""

    @property
    def prompts(self) -> int:
        """Number of prompts that it makes."""
        return 1 + len(self.turns)

    def as_json(self) -> dict[str, Any]:
        """Return the line as it stands in a task file."""
        if isinstance(self.model_input, str):
            asked: dict[str, Any] = {"prompt": self.model_input}
        else:
            first, *rest = self.model_input
            tools, messages = (fields_of(first), rest) if first[0] == TOOLS else ({}, self.model_input)
            written = [{"role": each[0], "content": each[1], **fields_of(each)} for each in messages]
            asked = {**tools, "messages": written}
        names = {"category": self.category or None, "group": self.group or None}
        row = {"id": self.id, **asked, "turns": list(self.turns) or None, "reference": self.reference, **names}
        return without_nulls(row)


def read_line(row: ShapedRow, scorer: Scorer) -> TaskLine:
    """Return the checked line. Raises ``LineError``.

    Without a reference, a scorer that needs one gets the answer that the conversation ended with.
    """
    asked = checked_text("prompt", row.prompt) if row.messages is None else checked_conversation(row.messages)
    if row.tools is not None:
        messages: tuple[Message, ...] = (("user", asked),) if isinstance(asked, str) else asked
        asked = checked_tools(row.tools), *messages
    turns = checked_turns(row.turns) if row.turns else ()
    if turns and scorer.needs_reference:
        raise LineError(
            f"It has several turns, and the scorer {scorer.name} reads one answer: choose the scorer none, or leave "
            "the later turns out."
        )
    reference = row.reference
    if reference is None and row.answer is not None and scorer.needs_reference:
        reference = text_of("Its answer", row.answer)
    return TaskLine(
        asked,
        _reference(reference, scorer),
        _short("id", _whole_number(row.id), "a whole number, or a text of 1 to", shortest=1),
        (_short("category", row.category) or "").strip(),
        (_short("group", _whole_number(row.group)) or "").strip(),
        turns,
    )


def _reference(value: Any, scorer: Scorer) -> str | None:
    if value is None:
        if scorer.needs_reference:
            raise LineError(f"It has no reference, which the scorer {scorer.name} needs: add one, or choose none.")
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise LineError("Its reference is neither text nor number: expected one of them.")
    try:
        text = storable("reference", str(value))
    except ValueError:  # more digits than Python writes
        raise LineError("Its reference is a number that is too long: write it as a text.") from None
    if len(text) > LONGEST_REFERENCE:
        raise LineError(f"Its reference has {len(text):,} characters: expected at most {LONGEST_REFERENCE:,}.")
    try:
        scorer.read(text)
    except ValueError as error:
        raise LineError(f"Its reference {text[:40]!r} {error}.") from None
    return text


def _short(field: str, value: Any, expected: str = "a text of at most", shortest: int = 0) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not shortest <= len(value) <= _LONGEST_ID or not value.isprintable():
        raise LineError(f"Its {field} cannot be used: expected {expected} {_LONGEST_ID} printable characters.")
    return value


def _whole_number(value: Any) -> Any:
    """Return a whole number as text, and anything else as it is."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value
