"""One shape of errors below ``/api/v1``: whatever refuses a request there, its answer is a problem document."""

from __future__ import annotations

import json
from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.server.calls import API_VERSION
from dashboard.server.problem_document import PROBLEM_TYPE

_BELOW = "/api/v1"


class ApiProblems:
    """Turns the sentences of other middleware, and the framework's own errors, into problem documents.

    Every answer below ``/api/v1`` also has the version in the header ``FSD-API-Version``.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not (path == _BELOW or path.startswith(f"{_BELOW}/")):
            return await self.app(scope, receive, send)
        started: Message | None = None
        body = bytearray()

        async def versioned(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["FSD-API-Version"] = API_VERSION
                if message["status"] >= 400 and headers.get("content-type", "") != PROBLEM_TYPE:
                    started = message
                    return
            elif started is not None:
                body.extend(message.get("body", b""))
                if message.get("more_body"):
                    return
                document, headers = _document(started["status"], bytes(body)), MutableHeaders(scope=started)
                headers["content-type"], headers["cache-control"] = PROBLEM_TYPE, "no-store"
                headers["content-length"] = str(len(document))
                await send(started)
                message = {"type": "http.response.body", "body": document}
            await send(message)

        return await self.app(scope, receive, versioned)


def _document(status: int, body: bytes) -> bytes:
    """Return the problem document with the sentence of another answer."""
    text = body.decode("utf-8", "replace").strip()
    try:
        told = json.loads(text)
        text = str(told["detail"]) if isinstance(told, dict) and "detail" in told else text
    except ValueError:
        pass
    title = HTTPStatus(status).phrase
    name = title.lower().replace(" ", "-")
    content = {"type": f"urn:fsd-lab:problem:{name}", "title": title, "status": status, "detail": text or f"{title}."}
    return json.dumps(content, ensure_ascii=False).encode()
