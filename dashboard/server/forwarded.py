"""The name under which a proxy is reached, as it says itself: believed of named proxies alone."""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

_HOST = b"x-forwarded-host"


class ForwardedHeaders:
    """Takes ``X-Forwarded-Host`` out of requests that come from none of ``proxies``: Gradio would put that name into
    its answers. With ``clients``, what a proxy says of its client is believed as well.
    """

    def __init__(self, app: ASGIApp, proxies: Collection[str], *, clients: bool) -> None:
        self.app, self.proxies = app, frozenset(proxies)
        self._believing = ProxyHeadersMiddleware(app, list(proxies)) if clients else app  # pyright: ignore[reportArgumentType]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope.get("client") or ("", 0))[0] not in self.proxies:
            headers = [(name, value) for name, value in scope["headers"] if name.lower() != _HOST]
            return await self.app({**scope, "headers": headers}, receive, send)
        return await self._believing(scope, receive, send)  # pyright: ignore[reportArgumentType]
