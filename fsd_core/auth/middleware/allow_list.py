"""Access to needed addresses only, not to all that a framework offers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from fsd_core.auth.middleware.refusal import refuse

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
