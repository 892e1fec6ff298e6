"""Typed functions as endpoints of Gradio's API and as tools of its MCP server."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, get_type_hints

import gradio as gr
import orjson
from mcp.types import TextContent
from pydantic import ValidationError, create_model

from fsd_core.errors import FsdError, InvalidSetting
from fsd_core.frozen import sentence

Endpoint = Callable[..., Any]


class CallerError(gr.Error):
    """API error for the caller. It is not logged."""

    def __init__(self, message: str) -> None:
        super().__init__(message, print_exception=False)

    def __str__(self) -> str:
        return self.message


MOST_LISTED = 100


def checked_limit(limit: int) -> int:
    """Return how many things a caller wants listed. Raises ``InvalidSetting`` if that is out of range."""
    if not 1 <= limit <= MOST_LISTED:
        raise InvalidSetting(f"limit is {limit}: expected 1 to {MOST_LISTED}.")
    return limit


def offer(endpoints: Iterable[Endpoint]) -> None:
    """Add functions as endpoints to the caller's Blocks context, by their names and past the queue.

    Their type hints make the schema, and their docstrings (Google style) the descriptions. A parameter ``request`` is
    not part of the schema. It identifies the caller.
    """
    for function in endpoints:
        gr.api(_validating(function), queue=False)


def answer_in_json(pages: gr.Blocks) -> None:
    """Make the tools of a mounted application answer in JSON.

    Gradio would answer with Python's ``repr``, and read the files and drawings that an answer seems to name.
    """

    def as_json(data: list[Any], root_url: str) -> list[TextContent]:
        return [TextContent(type="text", text=orjson.dumps(output).decode()) for output in data]

    if pages.mcp_server_obj is None:
        raise RuntimeError(f"There is no MCP server: {pages.mcp_error}")
    pages.mcp_server_obj.postprocess_output_data = as_json  # pyright: ignore[reportAttributeAccessIssue]


def _validating(function: Endpoint) -> Endpoint:
    """Wrap a function so that its arguments are validated and its errors reach the caller as sentences."""
    signature = inspect.signature(function)
    kinds = {name: kind for name, kind in get_type_hints(function).items() if name not in ("return", "request")}
    fields: Any = {name: (kind, None) for name, kind in kinds.items()}
    model = create_model(function.__name__, **fields)

    @wraps(function)
    def answering(*args: Any, **named: Any) -> Any:
        bound = signature.bind(*args, **named)
        try:
            arguments = model.model_validate({name: bound.arguments[name] for name in kinds if name in bound.arguments})
            return function(**bound.arguments | {name: getattr(arguments, name) for name in arguments.model_fields_set})
        except ValidationError as error:
            raise CallerError(sentence(error, lambda path: " ".join(map(str, path)))) from None
        except FsdError as error:
            raise CallerError(str(error)) from None

    return answering
