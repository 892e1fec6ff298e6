"""The path below which a proxy serves the application. It removes the path before it passes a request on.

Links of the pages are relative, for each page lies directly below this path. What may be read at any address, such as
a redirect, begins with it.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send


def root_of(request: Request) -> str:
    """Return the path, such as ``/lab``; empty where the application has a host name of its own."""
    return str(request.scope.get("root_path", ""))


def browser_scheme(request: Request) -> str:
    """Return ``https`` if the browser speaks it, perhaps to a proxy that speaks http to us, or else ``http``.

    Anybody may claim it. Who does so wrongly gets a cookie that their own browser does not send.
    """
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip()
    origin = request.headers.get("origin", "")
    secure = "https" in (request.url.scheme, forwarded) or origin.startswith("https://")
    return "https" if secure else "http"


class RootPath:
    """Notes the path in each request. It stands before all other middleware."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        self.app, self.root = app, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app({**scope, "root_path": self.root}, receive, send)


class WholePath:
    """Puts the path back before the one that the proxy has left, as routers expect it.

    It stands behind all other middleware, which reads the application's own paths.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (root := scope.get("root_path", "")):
            raw = scope.get("raw_path")
            whole_raw = root.encode() + raw if raw is not None else None
            scope = {**scope, "path": root + scope["path"], "raw_path": whole_raw}
        await self.app(scope, receive, send)
