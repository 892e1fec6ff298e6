"""Request bodies of bounded size and duration."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fsd_core.auth.middleware.refusal import refuse

LARGEST_BODY = 2_000_000  # bytes
BODY_SECONDS = 20.0


class BoundedBody:
    """Reads the body before the application does, and refuses one larger than ``limit`` or slower than ``seconds``."""

    def __init__(self, app: ASGIApp, limit: int = LARGEST_BODY, seconds: float = BODY_SECONDS) -> None:
        self.app, self.limit, self.seconds = app, limit, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        body, more = bytearray(), self._declared(scope) > self.limit
        if not more:
            try:
                async with asyncio.timeout(self.seconds):
                    body, more = await self._read(receive)
            except TimeoutError:
                sentence = f"The body of the request did not arrive within {self.seconds:g} seconds: send it again."
                return await refuse(receive, send, 408, sentence)
        if more or len(body) > self.limit:
            sentence = f"The body of the request is too large: expected at most {self.limit:,} bytes."
            return await refuse(receive if more else replayed(b"", receive), send, 413, sentence)
        return await self.app(scope, replayed(bytes(body), receive), send)

    def _declared(self, scope: Scope) -> int:
        length = Headers(scope=scope).get("content-length", "0")
        return int(length) if length.isdecimal() else 0

    async def _read(self, receive: Receive) -> tuple[bytearray, bool]:
        """Return the body and whether there is more of it, as soon as it is too large.

        If the client disconnects, return what it sent.
        """
        body, more = bytearray(), True
        while more and len(body) <= self.limit:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return body, more


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return ``receive`` as if the body had not been read yet."""
    unread = True

    async def replay() -> Message:
        nonlocal unread
        if unread:
            unread = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay
