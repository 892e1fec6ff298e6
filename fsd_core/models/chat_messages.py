"""Messages of a conversation, as chat templates are given them. No torch, because tasks are made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

TOOLS = "tools"
"""in place of a role: what the model may call. It stands first, and is no message."""


class ToolMessage(NamedTuple):
    """A message that holds more than a text: calls of tools, or what a tool returned and for which call.

    With ``TOOLS`` in place of a role, ``fields`` has the tools of the conversation.
    """

    role: str
    content: str
    fields: str
    """a JSON object: ``tool_calls``, ``name`` and ``tool_call_id`` of a message, or ``tools``"""

    @property
    def values(self) -> dict[str, Any]:
        """The object in ``fields``."""
        return json.loads(self.fields)


Message = tuple[str, str] | ToolMessage
"""role (system, developer, user, assistant or tool) and content"""
Messages = tuple[Message, ...]


def fields_of(message: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a message beside role and content."""
    return message.values if isinstance(message, ToolMessage) else {}


def continued(asked: str | Messages, turns: Iterable[tuple[str, str]]) -> Messages:
    """Return a conversation that goes on. ``turns`` are the answer to what was asked, and what is asked next."""
    messages: list[Message] = [("user", asked)] if isinstance(asked, str) else list(asked)
    for answer, following in turns:
        messages += [("assistant", answer), ("user", following)]
    return tuple(messages)
