"""Typed functions as endpoints of Gradio's API, as tools of its MCP server, and as plain calls."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any

import gradio as gr
import orjson
from fastapi import Response
from fastapi.responses import PlainTextResponse
from mcp import types
from pydantic import TypeAdapter

from dashboard.ui.view import person_of
from fsd_core.actions.action import Action, Ask, Effects, do
from fsd_core.errors import DatabaseUnavailable, FsdError, UnknownName

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository


def answered(answer: Callable[[], Response], otherwise: int) -> Response:
    """Return an answer, or the sentence of its error: with 404 for what is not there, 503 for a database that does not
    answer, and the status ``otherwise`` for any other."""
    try:
        return answer()
    except UnknownName as error:
        return PlainTextResponse(str(error), 404)
    except DatabaseUnavailable as error:
        return PlainTextResponse(str(error), 503)
    except FsdError as error:
        return PlainTextResponse(str(error), otherwise)


ApiCall = Callable[..., Any]

INSTRUCTIONS = (
    "FSD Lab measures how far a language model may be sped up by speculative decoding, and what it costs in accuracy. "
    "Begin with list_choices, start an experiment or a calibration, read it until it has ended, and compare its runs. "
    "A use says what a setting is wanted for: propose measured runs for it, and people approve. Metrics have 95 % "
    "intervals: say them, and call nothing better whose interval does not show it. What is for people (verdicts, "
    "changes of a use, deletions) is refused to tokens. An error is a sentence that says what to do. Send a key of 32 "
    "random hexadecimal digits with whatever makes something, and the same key when you send it again."
)
"""for agents, before they choose a tool"""


def call_of(action: Action[..., Any], repository: Repository, settings: Settings) -> ApiCall:
    """Return an action as a function, which whoever sends the ``request`` asks for. Its arguments are validated."""
    usual = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = action.parameters
    listed = [inspect.Parameter(name, usual, default=it.default, annotation=it.kind) for name, it in parameters.items()]
    first = sum(it.required for it in parameters.values())
    listed.insert(first, inspect.Parameter("request", usual, default=None, annotation=gr.Request))
    signature = inspect.Signature(listed, return_annotation=action.answer)

    def call(*args: Any, **named: Any) -> Any:
        given = dict(signature.bind(*args, **named).arguments)
        return do(action, Ask(settings, person_of(given.pop("request", None)), repository), given)

    shown: Any = call
    shown.__signature__, shown.action = signature, action
    shown.__annotations__ = {one.name: one.annotation for one in listed} | {"return": action.answer}
    shown.__name__ = shown.__qualname__ = action.name
    shown.__doc__ = action.about
    return call


def answer_schema(action: Action[..., Any]) -> dict[str, Any]:
    """Return the JSON schema of an action's answer: an object. Any other value is wrapped as ``result``."""
    schema = TypeAdapter(action.answer).json_schema(mode="serialization")
    if schema.get("type") == "object" or all("$ref" in part for part in schema.get("anyOf", [schema])):
        return schema | {"type": "object"}
    definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
    return {"type": "object", "properties": {"result": schema}, "required": ["result"], **definitions}


class CallerError(gr.Error):
    """API error for the caller. It is not logged."""

    def __init__(self, message: str) -> None:
        super().__init__(message, print_exception=False)

    def __str__(self) -> str:
        return self.message


def offer(calls: Iterable[ApiCall]) -> None:
    """Add functions to the caller's Blocks context, by their names and past the queue.

    Their type hints make the schemas, and their docstrings (Google style) the descriptions. A parameter ``request`` is
    not part of the schema. It identifies the caller, whom errors reach as sentences.
    """

    def told(call: ApiCall) -> ApiCall:
        @wraps(call)
        def answering(*args: Any, **named: Any) -> Any:
            try:
                return call(*args, **named)
            except FsdError as error:
                raise CallerError(str(error)) from None

        return answering

    for call in calls:
        gr.api(told(call), queue=False)


def answer_in_json(pages: gr.Blocks) -> None:
    """Make the tools of a mounted application answer in JSON, and tell their types, effects and instructions.

    Gradio would answer with Python's ``repr``, and read the files and drawings that an answer seems to name.
    """

    def as_json(data: list[Any], root_url: str) -> list[types.TextContent]:
        return [types.TextContent(type="text", text=orjson.dumps(output).decode()) for output in data]

    own: Any = pages.mcp_server_obj
    if own is None:
        raise RuntimeError(f"There is no MCP server: {pages.mcp_error}")
    own.postprocess_output_data = as_json
    own.mcp_server.instructions = INSTRUCTIONS
    handlers: dict[type, Callable[[Any], Any]] = own.mcp_server.request_handlers
    list_tools, call_tool = handlers[types.ListToolsRequest], handlers[types.CallToolRequest]

    async def described(request: Any) -> types.ServerResult:
        result = await list_tools(request)
        for tool in result.root.tools:
            function = own.get_block_fn_from_endpoint_name(own.tool_to_endpoint[tool.name])
            assert function is not None
            assert function.fn is not None
            action = inspect.unwrap(function.fn).action  # pyright: ignore[reportFunctionMemberAccess]
            tool.outputSchema, tool.annotations = answer_schema(action), _annotations(action.effects)
        return result

    async def structured(request: Any) -> types.ServerResult:
        result = await call_tool(request)
        content = result.root.content
        if not result.root.isError and content:
            answer = json.loads(content[0].text)
            result.root.structuredContent = answer if isinstance(answer, dict) else {"result": answer}
        return result

    handlers[types.ListToolsRequest], handlers[types.CallToolRequest] = described, structured


def _annotations(effects: Effects) -> types.ToolAnnotations:
    return types.ToolAnnotations(
        readOnlyHint=not effects.writes,
        destructiveHint=effects.destroys,
        idempotentHint=effects.repeatable,
        openWorldHint=effects.elsewhere,
    )
