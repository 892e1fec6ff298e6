"""The calls for programs over plain HTTP: ``POST /api/v1/calls/NAME`` with the arguments as a JSON object."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson
from anyio.to_thread import run_sync
from fastapi import APIRouter, Request, Response

from dashboard.server.problem_document import problem_document
from dashboard.ui.endpoint import Endpoint, answer_schema, call, effects_of
from fsd_core.errors import FsdError, Malformed, UnknownName

CALL_PATHS = r"/api/v1/calls/[a-z_]{1,64}"
API_VERSION = "1.1"
"""of what lies below ``/api/v1``: the second number grows when something is added, and nothing is ever taken away"""


def call_routes(endpoints: Sequence[Endpoint]) -> APIRouter:
    """Return the routes ``/api/v1``, which lists the calls, and ``/api/v1/calls/NAME``."""
    router, by_name = APIRouter(prefix="/api/v1"), {endpoint.__name__: endpoint for endpoint in endpoints}

    @cache
    def described() -> bytes:
        calls = [
            {
                "call": name,
                "about": inspect.getdoc(endpoint),
                "effects": effects_of(endpoint)._asdict(),
                "answer": answer_schema(endpoint),
            }
            for name, endpoint in by_name.items()
        ]
        return orjson.dumps({"version": API_VERSION, "calls": calls})

    @router.get("")
    def about() -> Response:
        """Return the version, and every call with what it does and answers."""
        return Response(described(), media_type="application/json")

    @router.post("/calls/{name}")
    async def answer(name: str, request: Request) -> Response:
        """Do what a call does, as the one who asks."""
        try:
            if name not in by_name:
                raise UnknownName(f"There is no call '{name[:64]}': GET /api/v1 lists those that are.")
            arguments = _arguments(await request.body())
            content = await run_sync(call, by_name[name], arguments, request)
        except FsdError as error:
            return problem_document(error)
        return Response(orjson.dumps(content), media_type="application/json", headers={"Cache-Control": "no-store"})

    return router


def _arguments(body: bytes) -> dict[str, Any]:
    """Return the arguments in a body; none in an empty one. Raises ``InvalidSetting``."""
    try:
        arguments = orjson.loads(body or b"{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise Malformed("The body cannot be read: expected a JSON object with the arguments by name.")
    return arguments
