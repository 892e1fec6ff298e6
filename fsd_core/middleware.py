"""ASGI middleware that accepts or refuses requests."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, TextIO, cast
from urllib.parse import quote, urlsplit

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fsd_core.accounts import presents_token, told_to_strangers
from fsd_core.errors import FsdError

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
    :func:`replayed`: there is nothing to wait for then.
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


NOTHING_HERE = "There is nothing at this address."


class AllowList:
    """Accepts the requests whose method and whole path match one of ``patterns``, regular expressions by method.

    WebSockets are refused.
    """

    def __init__(self, app: ASGIApp, patterns: Mapping[str, Iterable[str]]) -> None:
        self.app = app
        self.patterns = {method: re.compile("|".join(paths)) for method, paths in patterns.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close"})
        if scope["type"] == "http" and not self.is_open(scope):
            return await self.closed(scope, receive, send)
        return await self.app(scope, receive, send)

    async def closed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is not accepted."""
        await refuse(receive, send, 404, NOTHING_HERE)

    def is_open(self, scope: Scope) -> bool:
        """Whether a pattern matches the request."""
        pattern = self.patterns.get(scope["method"])
        return pattern is not None and pattern.fullmatch(scope["path"]) is not None


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


LONGEST_LOG_MESSAGE = 16_000  # characters written at once; a traceback is shorter, a quoted request may be longer


class _Bounded:
    """A stream that drops the middle of texts that are too long."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if (left_out := len(text) - LONGEST_LOG_MESSAGE) > 0:
            half = LONGEST_LOG_MESSAGE // 2
            self._stream.write(f"{text[:half]} … ({left_out:,} characters left out) … {text[-half:]}")
        else:
            self._stream.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def bound_log_lines() -> None:
    """Shorten long lines on the process's standard error. Call it before logging is configured."""
    sys.stderr = cast(TextIO, _Bounded(sys.stderr))


READING_METHODS = ("GET", "HEAD")
_PORTS = {"http": 80, "https": 443}


class SameOrigin:
    """Accepts requests from the server's own pages, from a person's click and from programs.

    The page's own origin is the host and port that the request is addressed to, or one of ``names``, for proxies that
    rewrite the ``Host`` header. Another port of this machine is another origin.
    """

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self.app, self.names = app, frozenset(name.strip("[]").lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._allowed(scope["method"], Headers(scope=scope)):
            return await self.app(scope, receive, send)
        sentence = "This request was made by a page of another site, so it is refused: open the application itself."
        return await refuse(receive, send, 403, sentence)

    def _allowed(self, method: str, headers: Headers) -> bool:
        if (origin := headers.get("origin")) == "null" and headers.get("sec-fetch-site") == "same-origin":
            return True  # our own page, behind a proxy that asks browsers for no referrer
        if origin is not None:
            return self._is_same_origin(origin, headers.get("host", ""))
        # Without an origin: a program, or a request that reads. An old browser sends no header with those.
        cross_origin = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        followed_link = method in READING_METHODS and headers.get("sec-fetch-mode") == "navigate"
        return followed_link or not cross_origin

    def _is_same_origin(self, origin: str, host: str) -> bool:
        try:
            page = urlsplit(origin)
            port = _PORTS[page.scheme]
            requested = urlsplit(f"//{host}")
            same_port = (page.port or port) == (requested.port or port)
        except (ValueError, KeyError):  # "null", or what no browser sends
            return False
        return page.hostname in self.names or (page.hostname == requested.hostname and same_port)


_WANTED, _INVALID = 'Bearer realm="FSD Lab"', 'Bearer realm="FSD Lab", error="invalid_token"'
"""challenges of RFC 6750"""
PASSWORD = "/password"
"""the page on which people choose a password"""


class RequireSignIn:
    """Stores who makes a request in its scope, under ``key``.

    Unauthenticated requests for a page are redirected to the page ``login``, and all others are refused. ``identify``
    may read a database. Who signed in with a one-time password may choose another and sign out alone. The page
    ``login`` and the addresses below it are open to everybody. It is ``None`` if nobody can sign in here, such as
    behind a proxy. The paths ``public`` are open to everybody, too.
    """

    def __init__(
        self, app: ASGIApp, identify: Callable[[Scope], Any], key: str, login: str | None, public: Collection[str] = ()
    ) -> None:
        self.app, self.identify, self.key, self.login, self.public = app, identify, key, login, frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self.public:
            return await self.app(scope, receive, send)
        try:
            person = await anyio.to_thread.run_sync(self.identify, scope)
        except FsdError as error:
            return await refuse(receive, send, 503, told_to_strangers(error))
        if getattr(person, "must_choose_password", False) and scope["path"] not in (PASSWORD, "/logout", self.login):
            if looks_for_page(scope):
                return await RedirectResponse(f"{scope.get('root_path', '')}{PASSWORD}", 303)(scope, receive, send)
            told = "You signed in with a one-time password: choose one of your own first, on the page Your password."
            return await refuse(receive, send, 403, told)
        if person is not None:
            return await self.app({**scope, self.key: person}, receive, send)
        if self.login is not None and (scope["path"] == self.login or scope["path"].startswith(f"{self.login}/")):
            return await self.app(scope, receive, send)
        if self.login is not None and looks_for_page(scope) and not presents_token(scope):
            target = scope["path"] + (f"?{query}" if (query := scope["query_string"].decode("latin-1")) else "")
            address = f"{scope.get('root_path', '')}{self.login}?next={quote(target)}"
            return await RedirectResponse(address, 303)(scope, receive, send)
        if presents_token(scope):
            told, challenge = "This token is not known here, was revoked, or has expired: make a new one.", _INVALID
        else:
            told, challenge = "Sign in first, or send a token: Authorization: Bearer …", _WANTED
        return await refuse(receive, send, 401, told, {"WWW-Authenticate": challenge})
