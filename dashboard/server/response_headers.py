"""Headers of every response: load nothing from other sites, let no other site read this, cache hashed files."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def content_policy(*frames: str) -> str:
    """Return the Content-Security-Policy. ``frames`` are other sites that may embed the pages.

    Gradio compiles its templates in the browser, which needs eval and inline scripts. Everything else is ours alone.
    """
    return "; ".join(
        (
            "default-src 'self'",
            "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            " ".join(("frame-ancestors 'self'", *frames)),
        )
    )


CACHE_FOREVER = "public, max-age=31536000, immutable"


class ResponseHeaders:
    """Middleware that sets protective headers, and removes Gradio's, which let other origins read the pages.

    ``policy`` is the Content-Security-Policy of responses that have none of their own. Files with a hash of their
    contents in the address may be cached for good, or else a browser would ask for each of them again.
    """

    def __init__(self, app: ASGIApp, policy: str) -> None:
        self.app, self.policy = app, policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name in {name for name in headers if name.startswith("access-control-")}:
                    del headers[name]
                headers.setdefault("Content-Security-Policy", self.policy)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "same-origin"
                if _has_hash(scope) and message["status"] == 200:
                    headers["Cache-Control"] = CACHE_FOREVER
            await send(message)

        await self.app(scope, receive, send_protected)


def _has_hash(scope: Scope) -> bool:
    path = scope["path"]
    return path.startswith("/assets/") or (path == "/theme.css" and scope["query_string"].startswith(b"v="))
