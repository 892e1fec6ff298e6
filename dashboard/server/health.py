"""``/health``, for what restarts containers, and HEAD wherever GET is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio.to_thread import run_sync
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.ui.polled import Polled
from fsd_core.errors import FsdError

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

HEALTH_PATH = "/health"
_KEPT = 1.0  # seconds: many probes cost one question


class Health:
    """Answers ``/health`` to everybody, under any host name: 200 while the database answers, and 503 otherwise.

    It says nothing else but whether the worker is alive, without which pages are read and nothing is generated.
    """

    def __init__(self, app: ASGIApp, repository: Repository) -> None:
        self.app, self._state = app, Polled(lambda: _state(repository), _KEPT)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != HEALTH_PATH or scope["method"] != "GET":
            return await self.app(scope, receive, send)
        state = await run_sync(self._state)
        answer = JSONResponse(state, 200 if state["database"] == "answers" else 503, {"Cache-Control": "no-store"})
        return await answer(scope, receive, send)


def _state(repository: Repository) -> dict[str, str]:
    try:
        worker = repository.worker()
    except FsdError:
        return {"web": "answers", "database": "does not answer", "worker": "unknown"}
    return {"web": "answers", "database": "answers", "worker": "alive" if worker and worker.alive else "not running"}


class HeadAsGet:
    """Answers HEAD as GET, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            return await self.app(scope, receive, send)
        ended = False

        async def headers_alone(message: Message) -> None:
            nonlocal ended
            if message["type"] != "http.response.body":
                await send(message)
            elif not ended:
                ended = True  # a stream is not waited for
                await send({"type": "http.response.body", "body": b""})

        async def until_ended() -> Message:
            return {"type": "http.disconnect"} if ended else await receive()

        return await self.app({**scope, "method": "GET"}, until_ended, headers_alone)
