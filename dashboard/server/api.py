"""Plain HTTP beside the pages: calls for programs, approved settings, the reference, health, errors as problems.

API for programs: the setting that is approved for a use. Responses can be cached and revalidated by their ETag.

A failure is answered with a problem document, never with a sentence in place of the data.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from starlette.datastructures import URL, MutableHeaders, QueryParams
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.server.mlflow_pages import PATTERNS, READ_ONLY
from dashboard.server.requests import root_of
from dashboard.server.sign_in import bare_page
from dashboard.ui.api_call import answer_schema
from dashboard.ui.templates import Html, frozen_html, render
from dashboard.ui.view import Polled, person_of
from fsd_core.actions.action import Action, Ask, do
from fsd_core.cli import reference
from fsd_core.errors import (
    FsdError,
    InvalidSetting,
    Malformed,
    NoEquivalent,
    Overtaken,
    Refused,
    UnderReview,
    UnknownName,
)
from fsd_core.middleware import NOTHING_HERE, READING_METHODS, AllowList, looks_for_page, refuse
from fsd_core.review.approvals import approval_of, check_setting
from fsd_core.review.delivery import deliver, described
from fsd_core.review.review_service import ReviewService
from fsd_core.settings import MLFLOW_PATH
from fsd_core.texts import markdown_html

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository


class ErrorKind(NamedTuple):
    """A kind of error: what stays the same from one answer to the next."""

    status: int
    name: str
    title: str


_KINDS: dict[type[FsdError], ErrorKind] = {
    NoEquivalent: ErrorKind(409, "no-equivalent", "The engine cannot run this setting"),
    UnknownName: ErrorKind(404, "not-found", "There is no such thing"),
    Refused: ErrorKind(403, "refused", "This is not for whoever asks"),
    Overtaken: ErrorKind(409, "overtaken", "Somebody else acted first"),
    UnderReview: ErrorKind(409, "under-review", "The setting is under review already"),
    InvalidSetting: ErrorKind(422, "invalid", "This cannot be done as it was asked"),
}
PROBLEM_TYPE = "application/problem+json"
_UNAVAILABLE = ErrorKind(503, "unavailable", "This cannot be answered now")


def problem_document(error: FsdError) -> JSONResponse:
    """Return the error as ``application/problem+json``. Its ``detail`` is the sentence, its ``type`` for programs."""
    kind = next((kind for error_type, kind in _KINDS.items() if isinstance(error, error_type)), _UNAVAILABLE)
    content = {
        "type": f"urn:fsd-lab:problem:{kind.name}",
        "title": kind.title,
        "status": kind.status,
        "detail": str(error),
    }
    return JSONResponse(content, kind.status, {"Cache-Control": "no-store"}, PROBLEM_TYPE)


CALL_PATHS = r"/api/v1/calls/[a-z_]{1,64}"
API_VERSION = "1.2"
"""of what lies below ``/api/v1``: the second number grows when something is added, and nothing is ever taken away"""


def call_routes(actions: Sequence[Action[..., Any]], repository: Repository, settings: Settings) -> APIRouter:
    """Return the routes ``/api/v1``, which lists the calls, and ``/api/v1/calls/NAME``."""
    router, by_name = APIRouter(prefix="/api/v1"), {action.name: action for action in actions}

    @cache
    def described() -> bytes:
        calls = [
            {
                "call": name,
                "about": action.about,
                "effects": action.effects._asdict(),
                "answer": answer_schema(action),
            }
            for name, action in by_name.items()
        ]
        return orjson.dumps({"version": API_VERSION, "calls": calls})

    @router.get("")
    def about() -> Response:
        """Return the version, and every call with what it does and answers."""
        return Response(described(), media_type="application/json")

    @router.post("/calls/{name}")
    async def answer(name: str, request: Request) -> Response:
        """Do what a call does, as the one who asks."""
        try:
            if name not in by_name:
                raise UnknownName(f"There is no call '{name[:64]}': GET /api/v1 lists those that are.")
            arguments = _arguments(await request.body())
            content = await run_sync(do, by_name[name], Ask(settings, person_of(request), repository), arguments)
        except FsdError as error:
            return problem_document(error)
        return Response(orjson.dumps(content), media_type="application/json", headers={"Cache-Control": "no-store"})

    return router


def _arguments(body: bytes) -> dict[str, Any]:
    """Return the arguments in a body; none in an empty one. Raises ``InvalidSetting``."""
    try:
        arguments = orjson.loads(body or b"{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise Malformed("The body cannot be read: expected a JSON object with the arguments by name.")
    return arguments


_BELOW = "/api/v1"


class ApiProblems:
    """Turns the sentences of other middleware, and the framework's own errors, into problem documents.

    Every answer below ``/api/v1`` also has the version in the header ``FSD-API-Version``.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not (path == _BELOW or path.startswith(f"{_BELOW}/")):
            return await self.app(scope, receive, send)
        started: Message | None = None
        body = bytearray()

        async def versioned(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["FSD-API-Version"] = API_VERSION
                if message["status"] >= 400 and headers.get("content-type", "") != PROBLEM_TYPE:
                    started = message
                    return
            elif started is not None:
                body.extend(message.get("body", b""))
                if message.get("more_body"):
                    return
                document, headers = _document(started["status"], bytes(body)), MutableHeaders(scope=started)
                headers["content-type"], headers["cache-control"] = PROBLEM_TYPE, "no-store"
                headers["content-length"] = str(len(document))
                await send(started)
                message = {"type": "http.response.body", "body": document}
            await send(message)

        return await self.app(scope, receive, versioned)


def _document(status: int, body: bytes) -> bytes:
    """Return the problem document with the sentence of another answer."""
    text = body.decode("utf-8", "replace").strip()
    try:
        told = json.loads(text)
        text = str(told["detail"]) if isinstance(told, dict) and "detail" in told else text
    except ValueError:
        pass
    title = HTTPStatus(status).phrase
    name = title.lower().replace(" ", "-")
    content = {"type": f"urn:fsd-lab:problem:{name}", "title": title, "status": status, "detail": text or f"{title}."}
    return json.dumps(content, ensure_ascii=False).encode()


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


API_PATHS = r"/api/v1/uses(/[a-z0-9-]{1,64}/(approved|check))?"


def api_routes(repository: Repository) -> APIRouter:
    """Return the routes ``/api/v1/uses``, and ``approved`` and ``check`` below each use."""
    router, service = APIRouter(prefix="/api/v1"), ReviewService(repository)

    @router.api_route("/uses", methods=[*READING_METHODS])
    def uses() -> Response:
        """Return every use with the settings that its aliases name."""
        try:
            records = [
                {
                    "use": use.id,
                    "name": use.name,
                    "approved": use.named("approved"),
                    "candidate": use.named("candidate"),
                }
                for use in service.uses()
            ]
        except FsdError as error:
            return problem_document(error)
        return JSONResponse({"uses": records})

    @router.api_route("/uses/{use_id}/approved", methods=[*READING_METHODS])
    def approved(use_id: str, form: str = "", if_none_match: str = Header("")) -> Response:
        """Return the approved setting as JSON with its approval, or in a form of ``delivery.FORMS``."""
        try:
            use = service.use(use_id)
            setting, weights = repository.setting(service.approved(use)).config, service.approved_weights(use)
            approvals = (logged for logged in use.log if logged.event in use.in_force[-1:])
            moved = next(approvals, use.aliases["approved"].moved)  # a roll-back puts one in force again
            approval: dict[str, Any] = {"by": moved.who, "at": moved.at.isoformat(), "sequence": moved.sequence}
            state = approval_of(repository, use)
            approval |= state.as_json() if state else {}
            body = {"use": use.id, "approved": approval} | described(setting, weights) | {"weights": weights}
            answer = PlainTextResponse(deliver(setting, form, weights)) if form else JSONResponse(body)
            tag = f'"{hashlib.sha256(bytes(answer.body) + repr(state).encode()).hexdigest()[:16]}"'
            answer.headers.update({"ETag": tag, "Cache-Control": "no-cache"})
            if state is not None:  # for the forms that are no JSON
                marks = {"FSD-Expired": str(state.expired).lower(), "FSD-Stale": str(state.stale).lower()}
                answer.headers.update(marks | {"FSD-Evidence": state.evidence})
            if {tag, "*"} & {part.strip().removeprefix("W/") for part in if_none_match.split(",")}:
                return Response(status_code=304, headers={"ETag": tag, "Cache-Control": "no-cache"})
            return answer
        except FsdError as error:
            return problem_document(error)

    @router.api_route("/uses/{use_id}/check", methods=[*READING_METHODS])
    def check(use_id: str, setting: str = "") -> Response:
        """Return whether a setting, by default the approved one, may serve a use now, by requirement."""
        try:
            return JSONResponse(check_setting(repository, service.use(use_id), setting).as_json())
        except FsdError as error:
            return problem_document(error)

    return router


def reference_routes() -> APIRouter:
    """Return the route ``/reference``: what ``python -m fsd_core docs`` prints, as a page."""
    router = APIRouter()

    @router.get("/reference")
    def page(request: Request) -> HTMLResponse:
        root = root_of(request)
        return HTMLResponse(bare_page(root, "Reference", render("server/pages.html", "reference", root, _reference())))

    return router


@cache
def _reference() -> Html:
    from fsd_core.cli.commands import application

    return frozen_html(markdown_html(reference.text(application()), anchors=True))


_OPEN = {
    "GET": (
        r"/",
        r"/favicon\.ico|/preview\.png|/theme\.css|/first\.css|/manifest\.json|/pwa_icon",
        r"/assets/[\w.-]+|/static/fonts/\w+/[\w-]+\.woff2|/static/js/iframeResizer\.contentWindow\.min\.js",
        r"/gradio_api/queue/data",  # the responses of the queue that Gradio's client uses
        r"/gradio_api/heartbeat/[0-9a-z]{1,64}",  # reports that a page is open
        r"/gradio_api/app_id",  # polled until a lost server answers again
        r"/export/comparison\.(csv|html|tex|matched\.csv)",
        r"/export/figure\.(png|svg|pdf|html)|/embed/figure",
        r"/config|/gradio_api/info",  # the schema of the endpoints for programs (dashboard/ui/api_call.py)
        r"/export/review\.(csv|jsonl)|/export/task\.jsonl",
        r"/api/v1|/reference",
        API_PATHS,
        MLFLOW_PATH,
        *PATTERNS["GET"],
    ),
    "HEAD": (r"/", API_PATHS),
    "POST": (
        *(r"/gradio_api/queue/join", r"/gradio_api/run/predict"),  # for programs and for pages
        r"/gradio_api/mcp/?",
        CALL_PATHS,
        *PATTERNS["POST"],  # requests of MLflow's pages
    ),
}

_SIGNING_IN = {
    "password": {"GET": ("/login", "/password"), "POST": ("/login", "/logout", "/password")},
    "huggingface": {"GET": ("/login(/huggingface|/callback)?",), "POST": ("/logout",)},
}


class OpenRoutes(AllowList):
    """Allow list for the pages. ``pages`` are their paths below the root, ``first`` is a second name of the root.

    ``access`` is the kind of sign-in. ``routes`` are those of features beside the core.
    """

    def __init__(
        self, app: ASGIApp, pages: Iterable[str], *, first: str = "", access: str = "none",
        routes: Iterable[BaseRoute] = (),
    ) -> None:  # fmt: skip
        self.first = f"/{first}"
        page_pattern = "|".join(re.escape(path) for path in pages)
        self.page = re.compile(rf"/({page_pattern})")
        allowed: dict[str, tuple[str, ...]] = {**_OPEN, "GET": (self.page.pattern, *_OPEN["GET"])}
        for method, paths in _SIGNING_IN.get(access, {}).items():
            allowed[method] = (*allowed[method], *paths)
        for route in (one for one in routes if isinstance(one, Route)):
            path = re.sub(r"\?P<\w+>", "?:", route.path_regex.pattern)  # several may have parameters of one name
            for method in route.methods or ():
                allowed[method] = (*allowed.get(method, ()), path)
        super().__init__(app, allowed)

    async def closed(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(f"{MLFLOW_PATH}/") and scope["method"] not in READING_METHODS:
            return await refuse(receive, send, 403, READ_ONLY)
        root, path = scope.get("root_path", ""), scope["path"].rstrip("/")
        if scope["method"] in READING_METHODS and path == self.first != "/":
            return await _redirect(scope, f"{root}/")(scope, receive, send)
        if scope["method"] in READING_METHODS and _asked_at_root(scope) & _OF_PLAYGROUND:
            return await _redirect(scope, f"{root}/playground")(scope, receive, send)
        if not looks_for_page(scope):
            return await super().closed(scope, receive, send)
        if self.page.fullmatch(path):  # the links of a page are relative, and would lead elsewhere behind a slash
            return await _redirect(scope, root + path)(scope, receive, send)
        body = render("server/pages.html", "nothing_here", root, NOTHING_HERE)
        return await HTMLResponse(bare_page(root, "Nothing here", body), 404)(scope, receive, send)

    def is_open(self, scope: Scope) -> bool:
        # Gradio takes ?page= at the root as the name of a page, and fails if there is none of that name.
        return super().is_open(scope) and not _asked_at_root(scope) & {"page", *_OF_PLAYGROUND}


_OF_PLAYGROUND = {"prompt", "job"}
"""what links name that were written when the Playground was at the root"""


def _asked_at_root(scope: Scope) -> set[str]:
    """Return the names in the query of a request for the root; none for another path."""
    return set(QueryParams(scope["query_string"])) if scope["path"] == "/" else set()


def _redirect(scope: Scope, path: str) -> RedirectResponse:
    """Return the redirect of a request to another path, with its query."""
    return RedirectResponse(URL(path).replace(query=scope["query_string"].decode("latin-1")), 308)
