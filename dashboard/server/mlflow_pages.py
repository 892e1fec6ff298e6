"""MLflow's pages under ``/mlflow``, read-only: requests are forwarded to its server for everybody who may enter
here."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import anyio
import httpx
from anyio.to_thread import run_sync
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from dashboard.server.requests import root_of
from dashboard.server.sign_in import bare_page
from dashboard.ui.templates import render, script
from fsd_core.accounts import person_in
from fsd_core.middleware import looks_for_page
from fsd_core.review.blinding import hidden_answers
from fsd_core.roles import NOBODY
from fsd_core.settings import MLFLOW_PATH
from fsd_core.worker.supervisor import MLFLOW_READ_PATHS, mlflow_problem, mlflow_socket

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository

logger = logging.getLogger(__name__)

PATTERNS = {method: tuple(f"{MLFLOW_PATH}({path})" for path in paths) for method, paths in MLFLOW_READ_PATHS.items()}
READ_ONLY = "MLflow's pages are for reading: runs are changed on FSD Lab's own pages."
MLFLOW_STARTING = "MLflow's pages are not up yet: they begin once the worker is idle. Try again in a moment."
_BUSY = "MLflow does not answer in time: try again in a moment."
UNREADABLE = "The address is too long or not one: open MLflow's pages from the page of a run."
TURNED_OFF = "MLflow's pages are turned off here: FSD_MLFLOW_UI is false."

HIDDEN = (
    "This file holds answers that are put to a blind vote: vote on them, or stop voting, on the page of the proposal."
)
_WITHOUT_ANSWERS = ("config.json", "metrics.json", "figures.html")

# MLflow's scripts are files of its own, so a script that is injected into a page does not run. Its charts need eval.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "worker-src 'self' blob:",
        "frame-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'self'",
    )
)
ARTIFACT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""for a file of a run that is opened by itself: it must not act as one of our pages, whatever it holds"""

# Headers that are forwarded. Credentials are not, nor what only concerns browser and web server.
_REQUEST_HEADERS = ("accept", "accept-encoding", "content-type", "if-none-match", "if-modified-since", "range")
_RESPONSE_HEADERS = (
    "content-type", "content-length", "content-encoding", "content-disposition", "content-range", "accept-ranges",
    "cache-control", "etag", "last-modified",
)  # fmt: skip
_LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=0)  # a connection serves one request
_TIMEOUT = httpx.Timeout(60.0, connect=5.0, pool=10.0)  # seconds


_START = "static-files/fsd-start.js"
"""below ``/mlflow``, where MLflow has its own scripts"""


class _Forwarded(StreamingResponse):
    """MLflow's response, streamed. Its connection is also closed when the browser has gone."""

    def __init__(self, answer: httpx.Response, policy: str) -> None:
        headers = {name: answer.headers[name] for name in _RESPONSE_HEADERS if name in answer.headers}
        super().__init__(answer.aiter_raw(), answer.status_code, headers | {"Content-Security-Policy": policy})
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except httpx.TransportError:  # the browser learns it from the end of its connection
            logger.warning("MLflow ended while it answered.")
        finally:
            with anyio.CancelScope(shield=True):
                await self._answer.aclose()


class _Server:
    """MLflow's server of a home folder, wherever it listens at the moment."""

    def __init__(self, settings: Settings) -> None:
        self._home = settings.home
        self._socket: str | None = None

    async def answer(self, request: Request, path: str) -> httpx.Response | None:
        """Forward a request and return the response, or ``None`` while the server is down.

        Raises ``httpx.TimeoutException`` if it is too busy, and ``httpx.InvalidURL`` for an address that no browser
        sends.
        """
        socket = await run_sync(mlflow_socket, self._home)
        if socket is None:
            return None
        if socket != self._socket:
            transport = httpx.AsyncHTTPTransport(uds=socket, limits=_LIMITS, verify=False)
            self._client = httpx.AsyncClient(transport=transport, timeout=_TIMEOUT, trust_env=False)
            self._client.headers.clear()
            self._socket = socket
        url = httpx.URL("http://localhost", path=f"/{path}", query=request.scope["query_string"] or None)
        headers = {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers}
        forwarded = self._client.build_request(request.method, url, headers=headers, content=await request.body())
        try:
            return await self._client.send(forwarded, stream=True)
        except httpx.TimeoutException:
            raise
        except httpx.TransportError:  # it has just stopped
            return None


async def _with_start(answer: httpx.Response) -> Response:
    """Return MLflow's page with our script before its own."""
    await answer.aread()
    await answer.aclose()
    page = answer.text.replace("<head>", f'<head><script src="{_START}"></script>', 1)
    return HTMLResponse(page, headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-store"})


def _is_hidden(repository: Repository, request: Request) -> bool:
    """Whether a file of a run holds answers that are put to a blind vote of the person who asks."""
    query = parse_qs(request.scope["query_string"].decode("latin-1"))
    named = [id for ids in (query.get("run_uuid", []), query.get("run_id", [])) for id in ids]
    if all(path in _WITHOUT_ANSWERS for path in query.get("path", [""])) or not named:
        return False
    runs = repository.runs_in_mlflow(named)
    return bool(hidden_answers(repository, person_in(request.scope) or NOBODY, runs).by_run)


def mlflow_routes(settings: Settings, repository: Repository) -> APIRouter:
    """Return the routes of ``/mlflow`` and everything below it."""
    router, server = APIRouter(), _Server(settings)

    @router.get(MLFLOW_PATH)
    def first_page(request: Request) -> RedirectResponse:
        return RedirectResponse(f"{root_of(request)}{MLFLOW_PATH}/", 308)  # its links are relative

    @router.get(f"{MLFLOW_PATH}/{_START}")
    def start() -> Response:
        return Response(script("server/mlflow_start.js"), media_type="text/javascript")

    @router.api_route(f"{MLFLOW_PATH}/{{path:path}}", methods=["GET", "POST"])
    async def forward(request: Request, path: str) -> Response:
        if settings.mlflow_is_server:  # the server has its own pages
            return RedirectResponse(str(settings.mlflow_url))
        if not settings.mlflow_ui:
            return _unavailable(request, TURNED_OFF)
        if path == "get-artifact" and await run_sync(_is_hidden, repository, request):
            return PlainTextResponse(HIDDEN, 403)
        try:
            answer = await server.answer(request, path)
        except httpx.TimeoutException:
            return _unavailable(request, _BUSY)
        except httpx.InvalidURL:
            return PlainTextResponse(UNREADABLE, 400)
        if answer is None:
            problem = await run_sync(mlflow_problem, settings.home)
            return _unavailable(request, problem or MLFLOW_STARTING, reload=True)
        if not path and answer.is_success and request.method == "GET":
            return await _with_start(answer)
        return _Forwarded(answer, ARTIFACT_POLICY if path == "get-artifact" else POLICY)

    return router


def _unavailable(request: Request, sentence: str, *, reload: bool = False) -> Response:
    """Return a sentence in place of a page: as a page for a person, as plain text for a script or a program."""
    if looks_for_page(request.scope):
        body = render("server/pages.html", "mlflow", root_of(request), sentence, reload)
        return HTMLResponse(bare_page(root_of(request), "MLflow", body), 503)
    return PlainTextResponse(sentence, 503)
