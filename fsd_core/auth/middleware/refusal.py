"""Refusals: an error status and a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

LINGER_SECONDS = 2.0


def looks_for_page(scope: Scope) -> bool:
    """Whether a person opens a link or an address, rather than a page or a program making a request."""
    return scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", "")


async def refuse(
    receive: Receive, send: Send, status: int, sentence: str, headers: Mapping[str, str] | None = None
) -> None:
    """Answer with ``status`` and ``sentence``, and ``headers`` of its own, and close the connection.

    What the client is still sending is read and dropped for a moment: a client whose connection is cut while it writes
    never sees the answer. Whoever has read the body before gives a ``receive`` that knows its end, as of
    :func:`fsd_core.auth.middleware.bodies.replayed`: there is nothing to wait for then.
    """
    body = sentence.encode()
    own = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    usual = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": [*usual, *own]})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while (await receive()).get("more_body"):
                pass
    await send({"type": "http.response.body", "body": b""})
