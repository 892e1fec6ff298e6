"""One line of a task file: a prompt or a conversation, with its reference if known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fsd_core.tasks.base import Messages
from fsd_core.tasks.custom.scorers import Scorer

FIELDS = ("prompt", "messages", "reference", "id")
_ROLES = ("system", "user", "assistant")
LONGEST_REFERENCE = 10_000
"""characters"""
_LONGEST_ID = 100
"""characters"""
MOST_MESSAGES = 100


class LineError(Exception):
    """A sentence on what is wrong with a line."""


@dataclass(frozen=True)
class TaskLine:
    """A valid line."""

    model_input: str | Messages
    """the prompt, or a conversation of more than one message"""
    reference: str | None
    """as written"""
    id: str | None

    def as_json(self) -> dict[str, Any]:
        """Return the line as it stands in a task file."""
        row: dict[str, Any] = {} if self.id is None else {"id": self.id}
        if isinstance(self.model_input, str):
            row["prompt"] = self.model_input
        else:
            row["messages"] = [{"role": role, "content": content} for role, content in self.model_input]
        return row if self.reference is None else row | {"reference": self.reference}


def read_line(row: dict[str, Any], scorer: Scorer) -> TaskLine:
    """Return the checked line. Raises ``LineError``."""
    if unknown := sorted(set(row) - set(FIELDS)):
        raise LineError(
            f"The field {unknown[0][:40]!r} is not known: expected {', '.join(FIELDS[:-1])} and {FIELDS[-1]}."
        )
    if "prompt" in row and "messages" in row:
        raise LineError("It has both prompt and messages: expected one of them.")
    if "prompt" in row:
        model_input: str | Messages = _text("prompt", row["prompt"])
    elif "messages" in row:
        model_input = _messages(row["messages"])
    else:
        raise LineError("It has neither prompt nor messages: expected one of them.")
    return TaskLine(model_input, _reference(row.get("reference"), scorer), _id(row.get("id")))


def _text(label: str, value: Any) -> str:
    if not isinstance(value, str):
        raise LineError(f"Its {label} is no text: expected one in quotation marks.")
    if not value.strip():
        raise LineError(f"Its {label} is empty: write at least one word.")
    return _storable(label, value)


def _storable(label: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise LineError(f"Its {label} holds half of a character (a lone surrogate): write the whole one.") from None
    if "\0" in value:
        raise LineError(f"Its {label} holds the character NUL: leave it out.")
    return value


def _messages(value: Any) -> str | Messages:
    """Return the conversation, or a prompt if it is a single user message."""
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_MESSAGES:
        raise LineError(f"Its messages are no list of 1 to {MOST_MESSAGES}: expected objects with role and content.")
    messages: list[tuple[str, str]] = []
    for number, message in enumerate(value, 1):
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise LineError(f"Message {number} is not of role and content alone: expected these two fields.")
        if message["role"] not in _ROLES:
            raise LineError(f"The role of message {number} is not known: expected one of {', '.join(_ROLES)}.")
        messages.append((message["role"], _text(f"message {number}", message["content"])))
    turns = [role for role, _ in messages]
    turns = turns[1:] if turns[0] == "system" else turns
    if turns != [("user", "assistant")[i % 2] for i in range(len(turns))] or len(turns) % 2 == 0:
        raise LineError(
            "Its messages are in no order that a model can go on with: expected user and assistant in turn, the last "
            "one of user, and before them at most one of system."
        )
    return messages[0][1] if len(messages) == 1 else tuple(messages)


def _reference(value: Any, scorer: Scorer) -> str | None:
    if value is None:
        if scorer.needs_reference:
            raise LineError(f"It has no reference, which the scorer {scorer.name} needs: add one, or choose none.")
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise LineError("Its reference is neither text nor number: expected one of them.")
    try:
        text = _storable("reference", str(value))
    except ValueError:  # more digits than Python writes
        raise LineError("Its reference is a number that is too long: write it as a text.") from None
    if len(text) > LONGEST_REFERENCE:
        raise LineError(f"Its reference has {len(text):,} characters: expected at most {LONGEST_REFERENCE:,}.")
    try:
        scorer.read(text)
    except ValueError as error:
        raise LineError(f"Its reference {text[:40]!r} {error}.") from None
    return text


def _id(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= _LONGEST_ID or not value.isprintable():
        raise LineError(f"Its id cannot be used: expected a text of 1 to {_LONGEST_ID} printable characters.")
    return value
