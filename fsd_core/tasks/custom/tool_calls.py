"""Calls of tools in a task file, and the tools that may be called, as chat templates of transformers are given them."""

from __future__ import annotations

import json
from typing import Any

from fsd_core.models.chat_messages import TOOLS, ToolMessage
from fsd_core.tasks.custom.problems import LineError

MOST_TOOLS = 128
"""of a line, and calls of a message"""
READ_FIELDS = {"assistant": {"tool_calls"}, "tool": {"name", "tool_call_id"}}
"""fields beside role and content that are read, by role"""


def is_list_of_tools(value: Any) -> bool:
    """Return whether a field named ``tools`` can be one. Sets of training data hold it as a text."""
    value = _parsed(value)
    return isinstance(value, list) and bool(value) and all(isinstance(tool, dict) for tool in value)


def checked_tools(value: Any) -> ToolMessage:
    """Return the tools of a conversation. Raises ``LineError``."""
    tools = _parsed(value)
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
        return _dumped({"tool_calls": _checked_calls(number, message["tool_calls"])})
    read = {name: message[name] for name in sorted(READ_FIELDS.get(role, ())) if role == "tool" and message.get(name)}
    if any(not _is_name(value) for value in read.values()):
        raise LineError(
            f"Message {number} has a name or tool_call_id that is no text: expected one in quotation marks."
        )
    return _dumped(read) if read else ""


def _checked_calls(number: int, calls: Any) -> list[dict[str, Any]]:
    if not isinstance(calls, list) or len(calls) > MOST_TOOLS:
        raise LineError(f"The tool_calls of message {number} are no list of at most {MOST_TOOLS}: expected objects.")
    return [_checked_call(number, call) for call in calls]


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
