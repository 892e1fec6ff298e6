"""A reverse proxy that serves an application below a path, and removes the path before it passes a request on."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tests.tools.sizes import PATIENCE

ELSEWHERE = "Another program has this address."
_OF_A_CONNECTION = ("connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer")


@dataclass
class PrefixProxy:
    """``application``: the address that is behind it. Nobody else may be asked through it."""

    application: str
    prefix: str
    url: str = ""
    """as a browser knows it, with the prefix"""
    outside: list[str] = field(default_factory=list)
    """paths that were asked for and do not lie below the prefix"""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        assert scope["type"] == "http"
        request = Request(scope, receive)
        answer = (
            await self._answer(request) if request.url.path.startswith(f"{self.prefix}/") else self._of_another(request)
        )
        await answer(scope, receive, send)

    def _of_another(self, request: Request) -> Response:
        self.outside.append(request.url.path)
        return PlainTextResponse(ELSEWHERE, 404)

    async def _answer(self, request: Request) -> Response:
        """What the application answers, as it comes."""
        raw = request.scope["raw_path"].decode()[len(self.prefix) :]
        query = f"?{request.url.query}" if request.url.query else ""
        headers = [(name, value) for name, value in request.headers.items() if name not in _OF_A_CONNECTION]
        # Certificates take 30 ms to read, and this client would never look at them.
        client = httpx.AsyncClient(timeout=PATIENCE, trust_env=False, verify=False)
        asked = client.build_request(
            request.method, f"{self.application}{raw}{query}", headers=headers, content=await request.body()
        )
        try:
            came = await client.send(asked, stream=True)
        except httpx.TransportError:
            await client.aclose()
            return PlainTextResponse("The application does not answer.", 502)

        async def body() -> Iterator[bytes]:
            try:
                async for part in came.aiter_raw():
                    yield part
            finally:
                await came.aclose()
                await client.aclose()

        answer = StreamingResponse(body(), came.status_code)
        answer.raw_headers = [
            (name.lower(), value) for name, value in came.headers.raw if name.lower().decode() not in _OF_A_CONNECTION
        ]
        return answer


@contextmanager
def proxying(application: str, prefix: str) -> Iterator[PrefixProxy]:
    """The proxy on a port of its own."""
    proxy = PrefixProxy(application, prefix)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy.url = f"http://127.0.0.1:{listening.getsockname()[1]}{prefix}"
        server = uvicorn.Server(uvicorn.Config(proxy, log_level="warning", lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            end = time.monotonic() + PATIENCE
            while not server.started:
                assert time.monotonic() < end
                time.sleep(0.02)
            yield proxy
        finally:
            server.should_exit = True
            thread.join()
