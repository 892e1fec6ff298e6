"""One line of a task file: a prompt or a conversation, with its reference if known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fsd_core.models.chat_messages import TOOLS, Message, Messages, fields_of
from fsd_core.tasks.custom.conversation import (
    checked_conversation,
    checked_text,
    checked_turns,
    storable,
    text_of,
)
from fsd_core.tasks.custom.problems import LineError
from fsd_core.tasks.custom.scorers import Scorer
from fsd_core.tasks.custom.shapes import ShapedRow
from fsd_core.tasks.custom.tool_calls import checked_tools

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
        row: dict[str, Any] = {} if self.id is None else {"id": self.id}
        if isinstance(self.model_input, str):
            row["prompt"] = self.model_input
        else:
            tools = [message for message in self.model_input if message[0] == TOOLS]
            row |= fields_of(tools[0]) if tools else {}
            row["messages"] = [
                {"role": message[0], "content": message[1], **fields_of(message)}
                for message in self.model_input
                if message[0] != TOOLS
            ]
        row |= {"turns": list(self.turns)} if self.turns else {}
        row |= {} if self.reference is None else {"reference": self.reference}
        row |= {"category": self.category} if self.category else {}
        return row | ({"group": self.group} if self.group else {})


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
    return TaskLine(asked, _reference(reference, scorer), _id(row.id), *_names(row), turns)


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


def _names(row: ShapedRow) -> tuple[str, str]:
    """Return category and group; empty if it has none."""
    return _name("category", row.category), _name("group", _whole_number(row.group))


def _name(field: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > _LONGEST_ID or not value.isprintable():
        raise LineError(f"Its {field} cannot be used: expected a text of at most {_LONGEST_ID} printable characters.")
    return value.strip()


def _whole_number(value: Any) -> Any:
    """Return a whole number as text, and anything else as it is."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _id(value: Any) -> str | None:
    if value is None:
        return None
    text = _whole_number(value)
    if not isinstance(text, str) or not 1 <= len(text) <= _LONGEST_ID or not text.isprintable():
        raise LineError(
            f"Its id cannot be used: expected a whole number, or a text of 1 to {_LONGEST_ID} printable characters."
        )
    return text
