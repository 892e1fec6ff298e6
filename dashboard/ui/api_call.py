"""Typed functions as endpoints of Gradio's API, as tools of its MCP server, and as plain calls."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import gradio as gr
import orjson
from fastapi import Response
from fastapi.responses import PlainTextResponse
from mcp import types
from pydantic import BaseModel, TypeAdapter, ValidationError, create_model

from dashboard.ui.view import person_of
from fsd_core.actions.action import Action, Ask, Effects
from fsd_core.errors import DatabaseUnavailable, FsdError, Malformed, NotGiven, OutOfRange, UnknownChoice, UnknownName
from fsd_core.frozen import first_error
from fsd_core.texts import whole

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
_Function = TypeVar("_Function", bound=ApiCall)

INSTRUCTIONS = (
    "FSD Lab measures how far a language model may be sped up by speculative decoding, and what it costs in accuracy. "
    "Begin with list_choices, start an experiment or a calibration, read it until it has ended, and compare its runs. "
    "A use says what a setting is wanted for: propose measured runs for it, and people approve. Metrics have 95 % "
    "intervals: say them, and call nothing better whose interval does not show it. What is for people (verdicts, "
    "changes of a use, deletions) is refused to tokens. An error is a sentence that says what to do. Send a key of 32 "
    "random hexadecimal digits with whatever makes something, and the same key when you send it again."
)
"""for agents, before they choose a tool"""


_READS = Effects()


def call_of(action: Action[Any, Any], repository: Repository, settings: Settings) -> ApiCall:
    """Return an action as a call, which whoever sends the ``request`` asks for."""

    usual = inspect.Parameter.POSITIONAL_OR_KEYWORD
    listed = [
        inspect.Parameter(name, usual, default=one.default, annotation=one.kind)
        for name, one in action.parameters.items()
    ]
    first = sum(one.required for one in action.parameters.values())
    listed.insert(first, inspect.Parameter("request", usual, default=None, annotation=gr.Request))
    signature = inspect.Signature(listed, return_annotation=action.answer)

    def call(*args: Any, **named: Any) -> Any:
        given = signature.bind(*args, **named).arguments
        return action(Ask(settings, person_of(given.pop("request", None)), repository), **given)

    call.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    call.__annotations__ = {one.name: one.annotation for one in listed} | {"return": action.answer}
    call.__name__ = call.__qualname__ = action.name
    call.__doc__ = action.about
    call.effects = action.effects  # pyright: ignore[reportFunctionMemberAccess]
    return call


def does(
    *, writes: bool = True, destroys: bool = False, repeatable: bool = False, elsewhere: bool = False
) -> Callable[[_Function], _Function]:
    """Mark a function with what it does beside answering. One without a mark only reads."""

    def mark(function: _Function) -> _Function:
        function.effects = Effects(writes, destroys, repeatable, elsewhere)  # pyright: ignore[reportFunctionMemberAccess]
        return function

    return mark


def effects_of(endpoint: ApiCall) -> Effects:
    """Return the effects of a call."""
    return getattr(endpoint, "effects", _READS)


def answer_schema(endpoint: ApiCall) -> dict[str, Any]:
    """Return the JSON schema of a call's answer: an object. Any other value is wrapped as ``result``."""
    answer = get_type_hints(inspect.unwrap(endpoint))["return"]
    schema = TypeAdapter(answer).json_schema(mode="serialization")
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


MOST_LISTED = 100


def checked_limit(limit: int, most: int = MOST_LISTED) -> int:
    """Return how many things a caller wants listed. Raises ``InvalidSetting`` if that is out of range."""
    if not 1 <= limit <= most:
        raise OutOfRange(f"limit is {limit}: expected 1 to {most}.")
    return limit


def offer(endpoints: Iterable[ApiCall]) -> None:
    """Add functions as endpoints to the caller's Blocks context, by their names and past the queue.

    Their type hints make the schemas, and their docstrings (Google style) the descriptions. A parameter ``request`` is
    not part of the schema. It identifies the caller.
    """
    for function in endpoints:
        gr.api(_for_gradio(function), queue=False)


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
            tool.outputSchema, tool.annotations = answer_schema(function.fn), _annotations(effects_of(function.fn))
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


def run_call(function: ApiCall, arguments: Mapping[str, Any], request: Any) -> Any:
    """Call a function with arguments that a program gives, after validating them.

    Raises ``InvalidSetting`` for those that are missing, unknown or of another type, and what the function raises.
    """
    if whole(dict(arguments)) != arguments:
        raise Malformed("A text of the arguments holds NUL or half of a character (a lone surrogate): leave it out.")
    signature, model = inspect.signature(function), arguments_of(function)
    kinds = model.model_fields
    if unknown := [name for name in arguments if name not in kinds]:
        raise UnknownChoice(f"There is no argument '{unknown[0][:40]}': expected {', '.join(kinds) or 'none'}.")
    required = [name for name in kinds if signature.parameters[name].default is inspect.Parameter.empty]
    if missing := [name for name in required if name not in arguments]:
        raise NotGiven(f"The argument '{missing[0]}' is missing: give it.")
    try:
        read = model.model_validate(dict(arguments))
    except ValidationError as error:
        raise first_error(error, lambda path: " ".join(map(str, path))) from None
    given = {name: getattr(read, name) for name in read.model_fields_set}
    return function(**given, **({"request": request} if "request" in signature.parameters else {}))


@lru_cache(maxsize=256)
def arguments_of(function: ApiCall) -> type[BaseModel]:
    """Return the model that validates a function's arguments."""
    hints = get_type_hints(function, include_extras=True)
    kinds = {name: kind for name, kind in hints.items() if name not in ("return", "request")}
    fields: Any = {name: (kind, None) for name, kind in kinds.items()}
    return create_model(function.__name__, **fields)


def _for_gradio(function: ApiCall) -> ApiCall:
    """Wrap a function so that its arguments are validated and its errors reach the caller as sentences."""
    signature = inspect.signature(function)

    @wraps(function)
    def answering(*args: Any, **named: Any) -> Any:
        arguments = dict(signature.bind(*args, **named).arguments)
        request = arguments.pop("request", None)
        try:
            return run_call(function, arguments, request)
        except FsdError as error:
            raise CallerError(str(error)) from None

    return answering
