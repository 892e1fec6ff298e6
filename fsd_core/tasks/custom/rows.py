"""One row of a task file: a prompt or a conversation, with its reference if known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import chain, islice, product
from typing import Any, NamedTuple

from fsd_core.models.conversation import TOOLS, Message, Messages, ToolMessage, fields_of
from fsd_core.tasks.choices import LETTERS, multiple_choice
from fsd_core.tasks.custom.scorers import Scorer
from fsd_core.texts import count

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
    notes: list[str] = field(default_factory=list)
    """sentences on how the file was read"""

    def wrong(self, line: int | None, sentence: str) -> None:
        """Add a problem of that line, or of the whole file."""
        where = "" if line is None else f"{self.unit.capitalize()} {line:,}: "
        self.problems.append(LineProblem(line, where + sentence))

    def listed(self) -> tuple[LineProblem, ...]:
        """Return the first problems in the order of the file. Those of one kind that is :data:`_ALIKE` are one."""
        alike: dict[str | int, list[LineProblem]] = {}
        for problem in sorted(self.problems, key=lambda problem: problem.line or 0):
            match = _ALIKE.search(problem.sentence)
            alike.setdefault(match[0] if match else len(alike), []).append(problem)
        self.problems = []
        for first, *others in alike.values():
            lines = f"{count(len(others), f'other {self.unit}')}: {_listed([f'{each.line:,}' for each in others], str)}"
            more = f" So it is with {lines}." * bool(others)
            self.problems.append(first._replace(sentence=first.sentence + more))
        return tuple(self.problems[:MOST_PROBLEMS_LISTED])


_ALIKE = re.compile(r" has (?:a part of type|no value in|no field|neither) .*")
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
    tools = [_as_tool(tool) for tool in tools]
    for number, tool in enumerate(tools, 1):
        function = tool.get("function") if tool.get("type", "function") == "function" else None
        if not isinstance(function, dict) or not _is_name(function.get("name")):
            raise LineError(
                f"Tool {number} is no function with a name: expected "
                '{"type": "function", "function": {"name": "…"}}.'
            )
    return ToolMessage(TOOLS, "", _dumped({"tools": tools}))


def _as_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool of ShareGPT or Anthropic, which are functions alone, with its type. Others are unchanged."""
    if "function" in tool or "name" not in tool:
        return tool
    function = {"parameters" if name == "input_schema" else name: value for name, value in tool.items()}
    return {"type": "function", "function": function}


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
_BEFORE = {"user": ("", "assistant", "tool"), "assistant": ("user", "tool"), "tool": ("assistant", "tool")}
"""roles, and what each may follow; nothing stands before the first user"""
_ROLES = (*_FIRST, *_BEFORE)
_ROLES_ELSEWHERE = {"human": "user", "gpt": "assistant", "observation": "tool", "function": "tool"}


def as_messages(value: Any) -> Any:
    """Return messages of ShareGPT, which have ``from`` and ``value``, with role and content, and each with our roles.
    Those of Anthropic have calls and results in blocks. Others are unchanged."""
    return [one for each in value for one in _without_blocks(_as_message(each))] if isinstance(value, list) else value


def _without_blocks(message: Any) -> list[Any]:
    """Return a message with its calls beside its content, and its results as messages before it."""
    blocks: Any = message.get("content") if isinstance(message, dict) else None
    if not is_list_of_objects(blocks):
        return [message]
    called, told = ([each for each in blocks if each.get("type") == f"tool_{kind}"] for kind in ("use", "result"))
    rest = [each for each in blocks if each.get("type") not in ("tool_use", "tool_result")]
    if called:
        calls = [{"id": each.get("id"), "function": each | {"arguments": each.get("input")}} for each in called]
        message = message | {"tool_calls": calls}
    own = [without(r, "type", "tool_use_id") | {"role": "tool", "tool_call_id": r.get("tool_use_id")} for r in told]
    return [*own, message | {"content": rest or None}] if rest or called else own


def _as_message(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    if {"from", "value"} <= set(message) and message.get("role") is None:
        message = without(message, "from", "value") | {"role": message["from"], "content": message["value"]}
    role = message.get("role")
    if role == "assistant" and isinstance(call := message.get("function_call"), dict):
        return without(message, "function_call") | {"tool_calls": [{"function": call}]}
    if role == "function_call":  # its text is a call, or a list of them
        called = _parsed(message.get("content"))
        calls = called if is_list_of_objects(called) else [called]
        if all(isinstance(call, dict) and _is_name(call.get("name")) for call in calls):
            return {"role": "assistant", "tool_calls": [{"function": call} for call in calls]}
        return message | {"role": "assistant"}
    return message | {"role": _ROLES_ELSEWHERE[role]} if isinstance(role, str) and role in _ROLES_ELSEWHERE else message


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
        if kind not in ("text", "input_text", "output_text") or not isinstance(part.get("text"), str):
            raise LineError(f"{label} has a part of type {str(kind)[:40]!r}: expected text, calls or results of tools.")
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


FIELDS = {
    # of a line, of chats, of ShareGPT, and of MT-Bench
    "prompt": ("prompt", "messages", "conversations", "turns"),
    "context": ("input", "context"),
    "reference": ("reference",),
    "choices": ("choices", "options", "endings"),
    "id": ("id", "custom_id"),
    "category": ("category",),
}
"""what a field may hold, with its usual names, looked for in this order"""
_LIKELY = {
    "prompt": ("question", "instruction", "query", "input", "problem", "request", "user", "text", "frage", "aufgabe"),
    "reference": (
        "answer", "expected_answer", "reference_answer", "correct_answer", "correct_option", "answerkey", "solution",
        "target", "label", "expected", "expected_output", "ground_truth", "gold", "ideal", "response", "completion",
        "output", "antwort", "lösung",
    ),
    "context": ("passage",),
}  # fmt: skip
"""names in files of other people, whatever their capitals and spaces, looked for in this order"""
_HOLDERS = ("body", "params", "inputs", "input", "row")
"""what holds a question in batches for OpenAI and Anthropic, in exports of LangSmith, and in preferences"""
_LETTERED = re.compile(r"([A-M])|(?i:option|choice|op)[ _-]?([A-Ma-m1-9])")
"""a column of one choice"""
_SYSTEM = ("system", "system_prompt")
_LIKE_OURS = 0.85
"""similarity from which a name is taken for a misspelt one"""
_LONGEST_FIELD_NAME = 40
"""characters that are shown of a name"""
_MOST_FIELDS_NAMED = 10
_MOST_NAMES_COMPARED = 100


class FieldNames(NamedTuple):
    """The fields of a file, by what they hold. An empty name stands for the usual one, ``None`` for no field."""

    prompt: str | None = ""
    reference: str | None = ""
    id: str | None = ""
    context: str | None = ""
    """what belongs to the prompt and stands behind it"""
    choices: str | None = ""
    """what is asked as lettered options"""
    category: str | None = ""
    by_text: bool = False
    """whether references are texts of choices, and not their numbers or letters"""


USUAL_FIELDS = FieldNames()


def question_of(row: dict[str, Any]) -> str:
    """Return the field whose name means a prompt; empty for none."""
    return _named((*FIELDS["prompt"], *_LIKELY["prompt"]), without_nulls(row))


def spread(row: dict[str, Any], names: FieldNames) -> dict[str, Any]:
    """Return a row with the fields of the object that it asks, and of its ``outputs``, as its own. A row that asks
    something else is unchanged, and so is an object that somebody named."""
    holder = next((each for each in _HOLDERS if isinstance(_parsed(row.get(each)), dict) and each not in names), "")
    if not holder or question_of(without(row, holder)):
        return _with_choices(row, names)
    parts = {name: part for name in (holder, "outputs") if isinstance(part := _parsed(row.get(name)), dict)}
    row, told = without(row, *parts), parts.get("outputs", {})
    if len(told) == 1 and not _named(("messages", *_LIKELY["reference"]), told) and not {*told} & {*names}:
        parts["outputs"] = {"reference": next(iter(told.values()))}
    for name, part in parts.items():
        row |= {f"{name}.{each}" if each in row else each: value for each, value in part.items()}
    if isinstance(asked := row.get("messages"), list) and isinstance(answer := row.get("outputs.messages"), list):
        row = without(row, "outputs.messages") | {"messages": asked + answer}
    return _with_choices(row, names)


def _with_choices(row: dict[str, Any], names: FieldNames) -> dict[str, Any]:
    """Return a row whose fields of one choice each, such as A to D, are its choices. Other rows are unchanged."""
    found = {(match[1] or match[2]).upper(): name for name in row if (match := _LETTERED.fullmatch(name))}
    labels, fields = "".join(found), found.values()
    if not labels.startswith(("ABC", "123")) or labels not in f"{LETTERS} 123456789":
        return row
    if names.choices not in ("", "choices") or "choices" in row or {*fields} & {*names}:
        return row
    given = {label: row[name] for label, name in found.items() if row[name] is not None}
    return without(row, *fields) | {"choices": given or None}


def inferred(rows: Sequence[dict[str, Any]], names: FieldNames, scored: bool) -> FieldNames:
    """Return the fields of all rows, with those that nobody named. Without ``scored`` no reference is looked for."""
    columns: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in without_nulls(row).items():
            columns.setdefault(name, []).append(value)
    is_named = any((names.prompt, names.reference, names.id))
    usual = {name for name in FIELDS["prompt"] if name in columns}
    prompt = names.prompt or ("" if usual or is_named else _prompt_field(columns, len(rows)))
    taken: set[str | None] = {prompt} if prompt else {*usual}

    def look(own: str, fits: Callable[[Any], object], by_likely: bool = bool(prompt) and not is_named) -> str | None:
        name = getattr(names, own)
        if name == "":
            fitting = [n for n in columns if n not in taken and all(map(fits, columns[n]))]
            name = next((n for n in FIELDS[own] if n in fitting), None)
            if name is None and by_likely:
                name = _named((*FIELDS[own], *_LIKELY.get(own, ())), fitting) or None
        taken.add(name)
        return name

    if "reference" in columns or is_named or not scored:
        names = names._replace(reference="reference" if names.reference == "" else names.reference)
    reference = look("reference", _is_scalar, True)
    id_name, category, choices = look("id", repr), look("category", repr), look("choices", options)
    context = look("context", lambda value: isinstance(value, str))
    asked = ((row.get(reference or ""), row.get(choices or "")) for row in rows)
    by_text = all(_is_text_of(answer, given) for answer, given in asked if given is not None)
    return FieldNames(prompt, reference, id_name, context, choices, category, by_text)


def _prompt_field(columns: dict[str, list[Any]], rows: int) -> str:
    """Return the field with a name that means a prompt, or else the one with the longest texts."""
    texts = [n for n, each in columns.items() if len(each) == rows and all(isinstance(v, str | list) for v in each)]
    others = {"title", "model", "method", "url", *chain.from_iterable((*FIELDS.values(), *_LIKELY.values()))}
    rest = [n for n in texts if n.lower() not in others and len(columns) > 1 and isinstance(columns[n][0], str)]
    return _named(_LIKELY["prompt"], texts) or max(rest, key=lambda name: sum(map(len, columns[name])), default="")


def _named(names: Sequence[str], fields: Collection[str]) -> str:
    """Return the first of the fields, in the order of the names, whatever their capitals."""
    by_name = {field.lower().replace(" ", "_"): field for field in reversed([*fields])}
    return next((by_name[name] for name in names if name in by_name), "")


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def options(value: Any) -> list[tuple[str, str]]:
    """Return labels and texts of choices, which are texts, objects of both, or an object: none for anything else."""
    value = _parsed(value)
    if isinstance(value, dict):
        labels, texts = value.get("label"), value.get("text")
        both = isinstance(labels, list) and isinstance(texts, list)
        pairs = [*zip(labels, texts, strict=False)] if both else [*value.items()]
    elif is_list_of_objects(value):
        pairs = [(each.get("label"), each.get("text")) for each in value]
    else:
        pairs = [*enumerate(value)] if isinstance(value, list) else []
    fits = len(pairs) <= len(LETTERS) and all(_is_scalar(text) for _, text in pairs)
    return [(str(label), str(text).strip()) for label, text in pairs] if fits else []


def _is_text_of(answer: Any, given: Any) -> bool:
    """Return whether an answer is the text of a choice, as a number is only where choices are numbers."""
    held = given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()
    numbers = any(isinstance(each, int | float) for each in held)
    return str(answer).strip() in (text for _, text in options(given)) and (numbers or isinstance(answer, str))


def _letter_of(answer: Any, given: list[tuple[str, str]], by_text: bool) -> Any:
    """Return the letter of a choice that is named by its label or index from 0, or else its text. Any other answer is
    unchanged."""
    named = [[label for label, _ in given], [str(index) for index in range(len(given))], [text for _, text in given]]
    text = str(answer).strip()
    places = (names.index(text) for names in (named[2:] if by_text else named) if text in names)
    return next((LETTERS[place] for place in places), answer)


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


def require(row: dict[str, Any], names: FieldNames) -> None:
    """Raise ``LineError`` if a row lacks a field that somebody named."""
    for name in names[:3]:
        if name and name not in row:
            raise LineError(f"It has no field {_shown(name)}: expected one of {_listed(row)}.")


def shape(row: dict[str, Any], names: FieldNames, *, all_turns: bool = False) -> ShapedRow:
    """Return the question of a row by its :func:`inferred` fields. A field that holds null counts as absent. With
    ``all_turns``, the user turns of messages are asked one after another. Raises ``LineError``."""
    given = without_nulls(row)
    name = names.prompt or _question_field(given)
    asked = given.get(name)
    held = {own: given.get(own or "") for own in (names.reference, names.category, names.context, names.choices)}
    group = given.get("group") if name != "group" else None
    shaped = ShapedRow(
        reference=held[names.reference], id=given.get(names.id or ""), category=held[names.category], group=group
    )
    shaped.unused = given.keys() - {name, names.id, names.reference, names.category, "group"}
    own = next((each for each in ("tools", "functions") if each in shaped.unused), "")
    if is_list_of_objects(tools := _parsed(given.get(own))):
        shaped.tools = tools
        shaped.unused -= {own}
    turns = given["turns"] if name != "turns" and isinstance(given.get("turns"), list) else []
    if turns:
        shaped.unused -= {"turns"}
    if name == "turns" and isinstance(asked, list) and asked:
        asked, *turns = asked
    if name in ("messages", "conversations") or is_list_of_objects(asked):
        shaped.messages, shaped.answer = without_answer(as_messages(asked))
        if all_turns:
            shaped.messages, later, shaped.answers_left_out = user_turns(shaped.messages)
            turns = [*later, *turns]
        shaped.unused |= {f"{name}.{each}" for each in unused_fields(shaped.messages)}
    else:
        shaped.prompt = asked
        if isinstance(asked, str):
            _complete(shaped, names, held[names.context], held[names.choices])
    _add_system(shaped, given)
    if turns:  # no scorer reads several answers
        shaped.unused |= {names.reference or ""} if shaped.reference is not None else set()
        shaped.turns, shaped.reference, shaped.answer = turns, None, None
    return shaped


def _complete(shaped: ShapedRow, names: FieldNames, context: Any, choices: Any) -> None:
    """Put context and lettered choices behind a prompt that has none, and make a letter of the reference."""
    if isinstance(context, str):
        shaped.unused -= {names.context}
        if context.strip() and context.strip() not in shaped.prompt:
            shaped.prompt = f"{shaped.prompt}\n\n{context}"
    if given := options(choices):
        shaped.unused -= {names.choices}
        if not all(text in shaped.prompt for _, text in given):
            shaped.prompt = multiple_choice(shaped.prompt, [text for _, text in given])
        if shaped.reference is not None:
            shaped.reference = _letter_of(shaped.reference, given, names.by_text)


def _add_system(shaped: ShapedRow, given: dict[str, Any]) -> None:
    """Put the system that stands beside a question before it, unless the question has one."""
    name = next((each for each in _SYSTEM if each in shaped.unused), "")
    text = text_of("Its system", given.get(name))
    messages = [{"role": "user", "content": shaped.prompt}] if shaped.messages is None else shaped.messages
    if not isinstance(text, str) or not text.strip() or not is_list_of_objects(messages):
        return
    if messages[0].get("role") not in _FIRST:
        shaped.unused -= {name}
        shaped.messages = [{"role": "system", "content": text}, *messages]


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return a row without the fields of those names."""
    return {name: value for name, value in row.items() if name not in names}


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that hold something. A table has each field in every row."""
    return {name: value for name, value in row.items() if value is not None}


def _question_field(given: dict[str, Any]) -> str:
    if "prompt" in given and "messages" in given:
        raise LineError("It has both prompt and messages: name the one that is asked (--prompt-field).")
    if name := next((each for each in FIELDS["prompt"] if each in given), ""):
        return name
    if not given:
        raise LineError("It has neither prompt nor messages: expected one of them.")
    pairs = product(islice(given, _MOST_NAMES_COMPARED), FIELDS["prompt"])
    likely = next(((name, own) for name, own in pairs if _alike(name, own)), None)
    rename = f", or rename {_shown(likely[0])} to {likely[1]}" if likely else ""
    raise LineError(
        "It has neither prompt nor messages. Name the field that is asked with --prompt-field, one of "
        f"{_listed(given)}{rename}."
    )


def unused_sentence(unused: Mapping[str, int], missing: Collection[str], unit: str) -> str:
    """Return the sentence on fields that are not read, with the number of rows that hold them. ``missing`` are our own
    that the file lacks."""

    def described(name: str) -> str:
        likely = next((f"is it {own}?" for own in missing if _alike(name, own)), "")
        hint = "a first line of its own names the scorer" if name == "scorer" else likely
        return f"{_shown(name)} ({count(unused[name], unit)}{f'; {hint}' * bool(hint)})"

    texts = {name: described(name) for name in islice(unused, _MOST_NAMES_COMPARED)}
    first = sorted(unused, key=lambda name: ";" not in texts.get(name, ""))
    return f"Fields that are not used: {_listed(first, lambda name: texts.get(name) or described(name))}."


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
