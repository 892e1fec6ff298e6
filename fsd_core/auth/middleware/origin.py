"""Requests of other sites' pages are refused: a browser says whose page made a request."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from fsd_core.auth.middleware.refusal import refuse

READING_METHODS = ("GET", "HEAD")
_PORTS = {"http": 80, "https": 443}


class SameOrigin:
    """Lets in what the server's own pages, a person's click or a program asks for.

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
        if (origin := headers.get("origin")) is not None:
            return self._is_own(origin, headers.get("host", ""))
        # Without an origin: a program, or a request that reads. An old browser tells nothing of those.
        elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        followed_link = method in READING_METHODS and headers.get("sec-fetch-mode") == "navigate"
        return followed_link or not elsewhere

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            page = urlsplit(origin)
            port = _PORTS[page.scheme]
            asked = urlsplit(f"//{host}")
            same_port = (page.port or port) == (asked.port or port)
        except (ValueError, KeyError):  # "null", or what no browser sends
            return False
        return page.hostname in self.names or (page.hostname == asked.hostname and same_port)
