"""A conversation in a task file: the shapes that it comes in, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsd_core.models.chat_messages import Message, Messages, ToolMessage
from fsd_core.tasks.custom.problems import LineError
from fsd_core.tasks.custom.tool_calls import READ_FIELDS, message_fields

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
