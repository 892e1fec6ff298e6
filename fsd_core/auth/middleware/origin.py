"""Refusal of requests from other sites' pages. A browser states the page's origin."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from fsd_core.auth.middleware.refusal import refuse

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
