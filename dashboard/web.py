"""The web application: Gradio's pages, without state and what costs most, mounted on FastAPI.

No state of pages. A page says itself what it shows, and Gradio would keep 0.6 MB of every visit for as long as it
runs.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs

import gradio as gr
import orjson
from cachetools import TTLCache
from fastapi import FastAPI, Request
from gradio.block_function import BlockFunction
from gradio.blocks import Blocks
from gradio.state_holder import SessionState, StateHolder
from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard import people, settings, start
from dashboard.compare import compare_page
from dashboard.compare.export import export_routes, figure_routes
from dashboard.experiments import experiments_page
from dashboard.experiments.custom_tasks_panel import task_routes
from dashboard.playground import playground_page
from dashboard.review import opened_proposal, review_page
from dashboard.review.review_page import log_routes
from dashboard.runs import runs_page
from dashboard.server.api import ApiProblems, HeadAsGet, Health, OpenRoutes, api_routes, call_routes, reference_routes
from dashboard.server.mlflow_pages import mlflow_routes
from dashboard.server.requests import (
    PREVIEW_PATH,
    ForwardedHeaders,
    ResponseHeaders,
    RootPath,
    WholePath,
    content_policy,
    preview_routes,
    replace_gradios_preview,
)
from dashboard.server.sign_in import login_routes, logout_routes
from dashboard.ui.api_call import ApiCall, answer_in_json, call_of, offer
from dashboard.ui.components import link
from dashboard.ui.first_paint import first_paint, sheet_routes
from dashboard.ui.page import (
    FAVICON,
    HEAD,
    STATUS_SECONDS,
    STYLE_SHEETS,
    Page,
    build_header,
    build_theme,
    worker_status,
)
from dashboard.ui.view import Polled, person_mark, sign_in_link
from fsd_core.accounts import KEY, identifier, person_in
from fsd_core.actions import calibrations, endpoints, experiments, kept, pairs, reviews, runs, tasks, uses
from fsd_core.actions.action import Action, actions_in
from fsd_core.middleware import BoundedBody, RequireSignIn, SameOrigin, refuse, replayed
from fsd_core.plugins import parts
from fsd_core.review.history import WaitingCount
from fsd_core.roles import folded
from fsd_core.settings import OAuthApp, here

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository


class Pages(gr.Blocks):
    """Pages that build only the parts that they show or change.

    Gradio would also rebuild unchanged parts, and have the browser build a component for each parameter of the
    endpoints. And after each page it would describe all that are there so far, twice, and when they are mounted again.
    """

    _is_built = False
    """whether all pages are there"""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.openings: dict[str, Callable[[Request], Mapping[Any, Any]]] = {}
        """what each page answers when it is opened, by its path"""

    def end(self) -> None:
        """Say that all pages are there. Gradio describes them when they are queued and mounted."""
        self._is_built = True

    def get_config_file(self) -> Any:
        """Return the configuration of the pages for browsers and programs. No page has the endpoints for programs."""
        if not self._is_built:
            return {}
        config: Any = super().get_config_file()
        parameters = {one["id"] for one in config["components"] if one["type"] == "api"}
        endpoints = {one["id"] for one in config["dependencies"] if not one["targets"]}
        for page in config["page"].values():
            page["components"] = [id for id in page["components"] if id not in parameters]
            page["dependencies"] = [id for id in page["dependencies"] if id not in endpoints]
            layout = page["layout"]
            layout["children"] = [child for child in layout["children"] if child["id"] not in parameters]
        return config

    async def postprocess_data(
        self, block_fn: BlockFunction, predictions: list[Any] | dict[Any, Any], state: SessionState | None
    ) -> list[Any]:
        """Return an event's answer for the browser, one value for each of its outputs."""
        if (
            not isinstance(predictions, dict)
            or not predictions
            or any(key not in block_fn.outputs for key in predictions)
        ):
            return await super().postprocess_data(block_fn, predictions, state)
        changed = copy(block_fn)
        changed.outputs = [block for block in block_fn.outputs if block in predictions]
        values = predictions if len(predictions) > 1 else next(iter(predictions.values()))
        data = await super().postprocess_data(changed, values, state)
        answers = dict(zip((block._id for block in changed.outputs), data, strict=True))
        return [answers.get(block._id, gr.skip()) for block in block_fn.outputs]


class AnswerState(SessionState):
    """The changes of one answer. Gradio's own class also copies every component's configuration, for deep links."""

    def __init__(self, blocks: Blocks) -> None:
        without_copies = SimpleNamespace(default_config=blocks.default_config, blocks={})
        super().__init__(cast(Blocks, without_copies))

    def __setitem__(self, key: int, value: Any) -> None:
        self.blocks_config.blocks[key] = value

    def _update_config(self, key: int) -> None:
        pass

    def _update_value_in_config(self, key: int, value: Any) -> None:
        pass


class NoSessions(StateHolder):
    """Each question is answered anew, whoever asked before."""

    def __getitem__(self, session_id: str) -> SessionState:
        return AnswerState(self.blocks)

    def replace_state_holder(self, app: FastAPI, pages: Blocks) -> None:
        """Replace Gradio's own state holder in an application that has ``pages`` mounted."""
        self.set_blocks(pages)
        mounted = next(route.app for route in app.routes if isinstance(route, Mount))
        cast(Any, mounted).state_holder = self


PAGE_CALLS = ("/gradio_api/queue/join", "/gradio_api/run/predict")
_STREAM, _HEARTBEAT = "/gradio_api/queue/data", "/gradio_api/heartbeat/"
_MOST_SESSIONS, _SESSION_SECONDS = 50_000, 86_400.0
_SESSION = re.compile("[0-9A-Za-z-]{1,64}")  # as Gradio's clients make them
NO_SESSION = "The session cannot be used: expected 1 to 64 letters, digits and hyphens."
NO_SUCH_FUNCTION = (
    "There is no such function here: reload the page, or look at /gradio_api/info for those that programs may call."
)
OF_PERSON = "FSD-Person"
"""the header in which a page names its person, and in which it is told that somebody else is signed in"""
ANOTHERS = "This session is somebody else's: reload the page to begin one of your own."


class PageCalls:
    """Refuses calls of functions that are unknown or that a browser runs by itself, and calls with too few values,
    before Gradio fails with a traceback. A session belongs to the person who has used it first: nobody else calls or
    reads in it. Nor does a page ask in the name of somebody else than the person whom it was made for, whom it names in
    a header.

    ``functions`` returns Gradio's functions by number. Requests have been read whole, and are known to be a person's.
    """

    def __init__(self, app: ASGIApp, functions: Callable[[], Mapping[int, BlockFunction]]) -> None:
        self.app, self._functions = app, functions
        self._owners: TTLCache[str, str] = TTLCache(_MOST_SESSIONS, _SESSION_SECONDS, time.monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        path, session = scope["path"], None
        if scope["method"] == "POST" and path in PAGE_CALLS:
            body = (await receive()).get("body", b"")
            receive = replayed(body, receive)
            call = _object(body)
            session = call.get("session_hash")
            if call and (refused := self._refusal(call)):
                return await refuse(receive, send, *refused)
        elif path == _STREAM:
            session = next(iter(parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [])), None)
        elif path.startswith(_HEARTBEAT):
            session = path.removeprefix(_HEARTBEAT)
        if session is not None and not (isinstance(session, str) and _SESSION.fullmatch(session)):
            return await refuse(receive, send, 422, NO_SESSION)
        if session is not None and not self._is_own(session, scope):
            return await refuse(receive, send, 403, ANOTHERS, {OF_PERSON: "other"})
        return await self.app(scope, receive, send)

    def _refusal(self, call: Mapping[str, Any]) -> tuple[int, str] | None:
        number, values = call.get("fn_index"), call.get("data")
        function = self._functions().get(number) if isinstance(number, int) else None
        if function is None or function.fn is None:
            return 404, NO_SUCH_FUNCTION
        expected, given = len(function.inputs), len(values) if isinstance(values, list) else 0
        if given < expected:
            return 422, f"The function was given {given} of the {expected} values that it reads: reload the page."
        return None

    def _is_own(self, session: str, scope: Scope) -> bool:
        person = person_in(scope)
        if Headers(scope=scope).get(OF_PERSON, mark := person_mark(person)) not in ("", mark):
            return False
        name = f"{'program' if person.is_program else 'person'} {folded(person.name)}" if person else ""
        if (owner := self._owners.get(session)) is None:
            self._owners[session] = owner = name
        return owner == name


def _object(body: bytes) -> dict[str, Any]:
    """Return the object in a body, or an empty one: what cannot be read is refused where it is needed."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}


os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported
# After each event, Gradio computes percentiles of its last 10,000 events, for a page that is closed here.
os.environ |= {"GRADIO_ANALYTICS_MAX_EVENTS": "1", "GRADIO_ANALYTICS_CACHE_FREQUENCY": str(10**12)}

PAGES = (
    Page("Start", "", start.build, in_bar=False),
    Page("Playground", "playground", playground_page.build),
    Page("Experiments", "experiments", experiments_page.build),
    Page("Compare", "compare", compare_page.build),
    Page("Runs", "runs", runs_page.build),
    Page("Settings", "settings", settings.build),
    Page("Review", "review", review_page.build),
    *parts("page"),
    Page("People", "people", people.build, needs_accounts=True),
)
"""in the order of the navigation, behind the one at the root"""
ICON_PATH = "/favicon.ico"
EPHEMERAL_NOTE = "This Space forgets its runs when it restarts. To keep them, attach a storage bucket at /data."


def pages_of(settings: Settings) -> list[Page]:
    """Return the pages of an installation."""
    return [page for page in PAGES if settings.access != "none" or not page.needs_accounts]


def all_actions() -> list[Action[..., Any]]:
    """Return what people and programs can do."""
    work = (tasks, experiments, pairs, endpoints, calibrations, runs, compare_page)
    modules = (*work, uses, reviews, opened_proposal, kept, *parts("actions"))
    return [it for module in modules for it in actions_in(module)]


def calls_of(repository: Repository, settings: Settings) -> list[ApiCall]:
    """Return the calls for programs."""
    return [call_of(action, repository, settings) for action in all_actions()]


def build_app(repository: Repository, settings: Settings) -> FastAPI:
    """Return the application over one database. It starts nothing: the supervisor starts the worker."""
    app = FastAPI(title="FSD Lab", docs_url=None, redoc_url=None, openapi_url=None)
    # The middleware added last sees a request first.
    app.add_middleware(WholePath)
    app.add_middleware(PageCalls, functions=lambda: pages.fns)
    login = "/login" if settings.access in ("password", "huggingface") else None
    identify = identifier(settings, repository)
    app.add_middleware(RequireSignIn, identify=identify, key=KEY, login=login, public=(ICON_PATH, PREVIEW_PATH))
    app.add_middleware(BoundedBody)
    app.add_middleware(SameOrigin, names=_host_names(settings))
    paths, first = [page.path for page in pages_of(settings) if page.path], PAGES[0].title.lower()
    of_features = [make(repository, settings) for make in parts("routes")]
    routes = [route for router in of_features for route in router.routes]
    app.add_middleware(OpenRoutes, pages=paths, first=first, access=settings.access, routes=routes)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["*"] if here() else settings.hosts)
    app.add_middleware(ResponseHeaders, policy=content_policy(*(["https://huggingface.co"] if here() else [])))
    app.add_middleware(ApiProblems)
    app.add_middleware(RootPath, root=settings.root_path)
    app.add_middleware(Health, repository=repository)
    app.add_middleware(HeadAsGet)
    if not here():  # a Space is reached through its own proxy alone
        # Where a proxy says who somebody is, who connects must stay who it is, whatever a header says of clients.
        app.add_middleware(ForwardedHeaders, proxies=settings.proxies, clients=settings.access != "proxy")
    app.include_router(preview_routes())
    app.include_router(sheet_routes())
    app.include_router(reference_routes())
    app.include_router(export_routes(repository))
    app.include_router(figure_routes(repository))
    app.include_router(log_routes(repository))
    app.include_router(task_routes(repository))
    for router in of_features:
        app.include_router(router)
    app.include_router(api_routes(repository))
    app.include_router(call_routes(all_actions(), repository, settings))
    app.include_router(mlflow_routes(settings, repository))
    if settings.access == "password":
        app.include_router(login_routes(repository, settings.session_cookie))
    if settings.access == "huggingface":
        # Imports a library that no other kind of access needs.
        from dashboard.server.sign_in import huggingface_routes

        app.router.routes.extend(huggingface_routes(repository, settings, OAuthApp.of(), here()))
    if login:
        app.include_router(logout_routes(repository, "/" if settings.demo else login, settings.session_cookie))
    pages = build_pages(repository, settings)
    beforehand = partial(first_paint, pages, pages.openings)
    replace_gradios_preview({page.path: page.title for page in PAGES}, settings.installation, beforehand)
    with warnings.catch_warnings():
        # Gradio warns for every application of several pages, even without server-side rendering.
        warnings.filterwarnings("ignore", "SSR mode is not supported", UserWarning)
        gr.mount_gradio_app(
            app,
            pages,
            path="/",
            root_path=settings.root_path,
            footer_links=[],
            run_history=False,
            enable_monitoring=False,
            show_error=False,
            ssr_mode=False,
            pwa=False,
            mcp_server=True,
            blocked_paths=[str(settings.home), str(Path.cwd())],
            favicon_path=str(FAVICON),
            theme=build_theme(),
            css=STYLE_SHEETS,
            head=HEAD,
        )
    answer_in_json(pages)
    NoSessions().replace_state_holder(app, pages)
    return app


def build_pages(repository: Repository, settings: Settings) -> Pages:
    """Return all pages, each under a header with the navigation and the worker's status."""
    blocks = Pages(title="FSD Lab", analytics_enabled=False, fill_width=True)
    with blocks:  # before the pages, whose events would take the endpoints' names
        offer(calls_of(repository, settings))
    status = Polled(partial(worker_status, repository, settings.executor), STATUS_SECONDS / 2)
    notes = [EPHEMERAL_NOTE if settings.is_ephemeral else "", *(note(settings) for note in parts("note"))]
    note = " ".join(filter(None, notes))
    waiting, pages, mlflow = WaitingCount(repository), pages_of(settings), settings.mlflow_url
    for page in pages:
        with blocks if not page.path else blocks.route(page.title, page.path):
            build_header(status, pages, page, visitor_sign_in_link(settings, f"/{page.path}"), note, waiting, mlflow)
            page.build(repository, settings)
    blocks.end()
    # Gradio's client sends the calls of programs through the queue, although no event of a page uses it.
    blocks.queue(max_size=64, default_concurrency_limit=8, api_open=False)
    return blocks


def visitor_sign_in_link(settings: Settings, page: str) -> str:
    """Return the link by which visitors of a demo sign in and come back to ``page``, or an empty string if there is
    none."""
    if not settings.demo:
        return ""
    root = settings.root_path
    links = {
        "huggingface": sign_in_link("Sign in", page, root=root),
        "password": link(f"{root}/login?next={page}", "Sign in"),
    }
    return links.get(settings.access, "")


def _host_names(settings: Settings) -> list[str]:
    """Return the names that our pages have in a browser, whatever the ``Host`` header says.

    They are those configured without a wildcard, and a Space's.
    """
    names = [name.strip() for name in settings.allowed_hosts.split(",") if name.strip() and "*" not in name]
    space = here()
    return [*names, space.host] if space else names
