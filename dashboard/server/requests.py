"""Requests on their way: the proxy's path and name, the headers of responses, previews of links.

The path below which a proxy serves the application. It removes the path before it passes a request on.

Links of the pages are relative, for each page lies directly below this path. What may be read at any address, such as
a redirect, begins with it.

Preview of a link to a page in another program: our name, a sentence and a picture, in place of Gradio's.

Programs request it without signing in, so it contains no stored data.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse
from gradio.routes import BUILD_PATH_LIB, templates
from jinja2 import BaseLoader, Environment, FunctionLoader
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from dashboard.ui.first_paint import HEAD_STYLE
from dashboard.ui.templates import Html, render
from dashboard.ui.view import person_mark
from fsd_core.accounts import person_in
from fsd_core.errors import InvalidSetting, NotGiven, OutOfRange

_SEE_HELP = "`python app.py --help` lists the arguments."


class _Parser(argparse.ArgumentParser):
    """Raises its errors as sentences."""

    def error(self, message: str) -> NoReturn:
        raise InvalidSetting(f"{message[0].upper()}{message[1:]}. {_SEE_HELP}")


def given(arguments: Sequence[str]) -> dict[str, str]:
    """Return the variables that the arguments set. Raises ``InvalidSetting``; ``--help`` prints a text and exits."""
    parser = _Parser(
        prog="python app.py",
        description="Serve FSD Lab's pages, with its worker, and print their address.",
        epilog="Every other setting is a variable of the environment: `python -m fsd_core docs` lists them.",
        allow_abbrev=False,
    )
    parser.add_argument("--host", help="address to listen on (FSD_HOST; default: 127.0.0.1, this machine alone)")
    parser.add_argument("--port", help="port to listen on, 1 to 65535 (FSD_PORT; default: 7860)")
    parser.add_argument(
        "--home", metavar="FOLDER", help="folder of the database, logs and models (FSD_HOME; default: ~/.fsd-lab)"
    )
    values = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    for name, value in values.items():
        if not value.strip():
            raise NotGiven(f"--{name} is empty: expected a value. {_SEE_HELP}")
    port = values.get("port", "1")
    if not (port.isascii() and port.isdecimal() and 1 <= int(port[:6]) <= 65535):
        raise OutOfRange(f"--port is {port[:40]!r}: expected a port from 1 to 65535.")
    return {f"FSD_{name.upper()}": value for name, value in values.items()}


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


PREVIEW_PATH = "/preview.png"
PICTURE = Path(__file__).parent / "preview.png"
_FIGURES = next((f"assets/{one.name}" for one in Path(BUILD_PATH_LIB).glob("PlotlyPlot-*.js")), "")
"""address of Gradio's script that draws figures, of several megabytes"""
_GRADIOS = re.compile(r'<meta\s+(?:property="og:|name="twitter:)[^>]*>')
_CHARSET, _APP = '<meta charset="utf-8" />', "<gradio-app"


def preview_routes() -> APIRouter:
    """Return the route of the picture."""
    router = APIRouter()

    @router.get(PREVIEW_PATH)
    def picture() -> FileResponse:
        return FileResponse(PICTURE, headers={"Cache-Control": "public, max-age=86400"})

    return router


def preview(request: Request) -> Html:
    """Return the tags for the head of a page. The picture's address is whole, as those who read it need it."""
    address = f"{browser_scheme(request)}://{request.headers.get('host', '')}{root_of(request)}{PREVIEW_PATH}"
    return render("server/pages.html", "preview", address)


def replace_gradios_preview(
    titles: Mapping[str, str], installation: str, first: Callable[[str, Request], Html]
) -> None:
    """Give Gradio's pages our tags and a title each, by path, and what they show ``first``: it has no option for them,
    and names itself.

    A tag names the ``installation`` and the person, for what a browser keeps for one person alone (``drafts.js``).
    """
    loader = templates.env.loader
    if loader is not None and not isinstance(loader, _OwnPreview):
        templates.env.loader = _OwnPreview(loader, templates.env)

    def head(request: Request, config: dict[str, Any]) -> Html:
        title = f"{titles.get(config.get('current_page', ''), 'Nothing here')} – FSD Lab"
        config["title"] = title  # a page's own copy, from which Gradio's script sets the title once more
        person = person_mark(person_in(request.scope))
        tags = render("server/pages.html", "gradios_head", title, preview(request), installation, person, _FIGURES)
        return Html(f"{tags}<style>{HEAD_STYLE}</style>")

    def body(request: Request, config: dict[str, Any]) -> Html:
        return first(config.get("current_page", ""), request)

    templates.env.globals["fsd_head"] = head  # pyrefly: ignore[unsupported-operation]
    templates.env.globals["fsd_body"] = body  # pyrefly: ignore[unsupported-operation]


class _OwnPreview(FunctionLoader):
    """Gradio's templates without its own tags. They call the function that :func:`replace_gradios_preview` adds."""

    def __init__(self, gradios: BaseLoader, environment: Environment) -> None:
        def source(name: str) -> tuple[str, str | None, Any]:
            text, file, current = gradios.get_source(environment, name)
            text = _GRADIOS.sub("", text).replace(_CHARSET, _CHARSET + "{{ fsd_head(request, config) }}", 1)
            return text.replace(_APP, "{{ fsd_body(request, config) }}" + _APP, 1), file, current

        super().__init__(source)


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
    contents in the address may be cached for good, or else a browser would ask for each of them again. What is made of
    stored data, as every page is, is kept by no cache that people share.
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
                elif not scope["path"].startswith(("/static/", "/assets/")):
                    headers.setdefault("Cache-Control", "private, no-cache")
            await send(message)

        await self.app(scope, receive, send_protected)


def _has_hash(scope: Scope) -> bool:
    path = scope["path"]
    return path.startswith("/assets/") or (path == "/theme.css" and scope["query_string"].startswith(b"v="))
