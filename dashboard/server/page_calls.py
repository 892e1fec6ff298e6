"""Calls of a page's functions: of functions that there are, and in a session of whoever asks."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

import orjson
from cachetools import TTLCache
from gradio.block_function import BlockFunction
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard.ui.signed_in import person_mark
from fsd_core.auth.identify import person_in
from fsd_core.auth.middleware.bodies import replayed
from fsd_core.auth.middleware.refusal import refuse
from fsd_core.roles import folded

PAGE_CALLS = ("/gradio_api/queue/join", "/gradio_api/run/predict")
_STREAM, _HEARTBEAT = "/gradio_api/queue/data", "/gradio_api/heartbeat/"
_MOST_SESSIONS, _SESSION_SECONDS = 50_000, 86_400.0
_SESSION = re.compile("[0-9A-Za-z-]{1,64}")  # as Gradio's clients make them
NO_SESSION = "The session cannot be used: expected 1 to 64 letters, digits and hyphens."
NO_SUCH_FUNCTION = (
    "There is no such function here: reload the page, or look at /gradio_api/info for those that programs may call."
)
OF_PERSON = "FSD-Person"
"""the header in which a page names its person, and in which it is told that somebody else is signed in"""
ANOTHERS = "This session is somebody else's: reload the page to begin one of your own."


class PageCalls:
    """Refuses calls of functions that are unknown or that a browser runs by itself, and calls with too few values,
    before Gradio fails with a traceback. A session belongs to the person who has used it first: nobody else calls or
    reads in it. Nor does a page ask in the name of somebody else than the person whom it was made for, whom it names in
    a header.

    ``functions`` returns Gradio's functions by number. Requests have been read whole, and are known to be a person's.
    """

    def __init__(self, app: ASGIApp, functions: Callable[[], Mapping[int, BlockFunction]]) -> None:
        self.app, self._functions = app, functions
        self._owners: TTLCache[str, str] = TTLCache(_MOST_SESSIONS, _SESSION_SECONDS, time.monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        path, session = scope["path"], None
        if scope["method"] == "POST" and path in PAGE_CALLS:
            body = (await receive()).get("body", b"")
            receive = replayed(body, receive)
            call = _object(body)
            session = call.get("session_hash")
            if call and (refused := self._refusal(call)):
                return await refuse(receive, send, *refused)
        elif path == _STREAM:
            session = next(iter(parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [])), None)
        elif path.startswith(_HEARTBEAT):
            session = path.removeprefix(_HEARTBEAT)
        if session is not None and not (isinstance(session, str) and _SESSION.fullmatch(session)):
            return await refuse(receive, send, 422, NO_SESSION)
        if session is not None and not self._is_own(session, scope):
            return await refuse(receive, send, 403, ANOTHERS, {OF_PERSON: "other"})
        return await self.app(scope, receive, send)

    def _refusal(self, call: Mapping[str, Any]) -> tuple[int, str] | None:
        number, values = call.get("fn_index"), call.get("data")
        function = self._functions().get(number) if isinstance(number, int) else None
        if function is None or function.fn is None:
            return 404, NO_SUCH_FUNCTION
        expected, given = len(function.inputs), len(values) if isinstance(values, list) else 0
        if given < expected:
            return 422, f"The function was given {given} of the {expected} values that it reads: reload the page."
        return None

    def _is_own(self, session: str, scope: Scope) -> bool:
        person = person_in(scope)
        if Headers(scope=scope).get(OF_PERSON, mark := person_mark(person)) not in ("", mark):
            return False
        name = f"{'program' if person.is_program else 'person'} {folded(person.name)}" if person else ""
        if (owner := self._owners.get(session)) is None:
            self._owners[session] = owner = name
        return owner == name


def _object(body: bytes) -> dict[str, Any]:
    """Return the object in a body, or an empty one: what cannot be read is refused where it is needed."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}
