"""The addresses that the pages need. Every other address that Gradio offers is closed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.datastructures import URL, QueryParams
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard.server.api import API_PATHS
from dashboard.server.bare_page import bare_page
from dashboard.server.calls import CALL_PATHS
from dashboard.server.mlflow_pages import PATTERNS, READ_ONLY
from dashboard.ui.templates import render
from fsd_core.auth.middleware.allow_list import NOTHING_HERE, AllowList
from fsd_core.auth.middleware.origin import READING_METHODS
from fsd_core.auth.middleware.refusal import looks_for_page, refuse
from fsd_core.settings import MLFLOW_PATH

_OPEN = {
    "GET": (
        r"/",
        r"/favicon\.ico|/preview\.png|/theme\.css|/manifest\.json|/pwa_icon",
        r"/assets/[\w.-]+|/static/fonts/\w+/[\w-]+\.woff2|/static/js/iframeResizer\.contentWindow\.min\.js",
        r"/gradio_api/queue/data",  # the responses of the queue that Gradio's client uses
        r"/gradio_api/heartbeat/[0-9a-z]{1,64}",  # reports that a page is open
        r"/gradio_api/app_id",  # polled until a lost server answers again
        r"/export/comparison\.(csv|html|tex|matched\.csv)",
        r"/export/figure\.(png|svg|pdf|html)|/embed/figure",
        r"/export/report\.(html|svg)",
        r"/config|/gradio_api/info",  # the schema of the endpoints for programs (dashboard/ui/endpoint.py)
        r"/export/review\.(csv|jsonl)|/export/workspace\.zip|/export/task\.jsonl",
        r"/api/v1",
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

    ``access`` is the kind of sign-in.
    """

    def __init__(self, app: ASGIApp, pages: Iterable[str], *, first: str = "", access: str = "none") -> None:
        self.first = f"/{first}"
        page_pattern = "|".join(re.escape(path) for path in pages)
        self.page = re.compile(rf"/({page_pattern})")
        allowed: dict[str, tuple[str, ...]] = {**_OPEN, "GET": (self.page.pattern, *_OPEN["GET"])}
        for method, paths in _SIGNING_IN.get(access, {}).items():
            allowed[method] = (*allowed[method], *paths)
        super().__init__(app, allowed)

    async def closed(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(f"{MLFLOW_PATH}/") and scope["method"] not in READING_METHODS:
            return await refuse(receive, send, 403, READ_ONLY)
        root, path = scope.get("root_path", ""), scope["path"].rstrip("/")
        if scope["method"] in READING_METHODS and path == self.first != "/":
            return await _redirect(scope, f"{root}/")(scope, receive, send)
        if not looks_for_page(scope):
            return await super().closed(scope, receive, send)
        if self.page.fullmatch(path):  # the links of a page are relative, and would lead elsewhere behind a slash
            return await _redirect(scope, root + path)(scope, receive, send)
        body = render("server/pages.html", "nothing_here", root, NOTHING_HERE)
        return await HTMLResponse(bare_page(root, "Nothing here", body), 404)(scope, receive, send)

    def is_open(self, scope: Scope) -> bool:
        # Gradio takes ?page= at the root as the name of a page, and fails if there is none of that name.
        names_page = scope["path"] == "/" and "page" in QueryParams(scope["query_string"])
        return super().is_open(scope) and not names_page


def _redirect(scope: Scope, path: str) -> RedirectResponse:
    """Return the redirect of a request to another path, with its query."""
    return RedirectResponse(URL(path).replace(query=scope["query_string"].decode("latin-1")), 308)
