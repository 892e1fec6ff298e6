"""Builds the web application: five pages of Gradio, mounted on FastAPI, reachable under known host names only."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported

import gradio as gr
from fastapi import FastAPI, Request, Response
from starlette.middleware.base import RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware

from dashboard.header import PAGES, build_header
from dashboard.pages import compare, experiments, playground, runs, theory
from dashboard.theme import CSS, FAVICON, HEAD, build_theme

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.tracking.database.repository import Repository

_BUILDERS = {
    "": playground.build,
    "experiments": experiments.build,
    "compare": compare.build,
    "runs": runs.build,
    "theory": theory.build,
}
_ON_SPACES = "SPACE_ID" in os.environ

# Gradio compiles its templates in the browser, which needs eval and inline scripts; everything else is ours alone.
_CONTENT_POLICY = "; ".join(
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
        f"frame-ancestors 'self'{' https://huggingface.co' if _ON_SPACES else ''}",
    )
)


def build_app(repository: Repository, settings: Settings) -> FastAPI:
    """The application over one database. Starts nothing: the worker is the supervisor's."""
    app = FastAPI(title="FSD Lab", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["*"] if _ON_SPACES else settings.hosts)

    @app.middleware("http")
    async def harden(request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        response.headers["Content-Security-Policy"] = _CONTENT_POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "same-origin"
        return response

    pages = build_pages(repository, settings)
    with warnings.catch_warnings():
        # Said of every application of several pages, also where nobody asked for rendering on the server.
        warnings.filterwarnings("ignore", "SSR mode is not supported", UserWarning)
        return gr.mount_gradio_app(
            app,
            pages,
            path="/",
            footer_links=[],
            run_history=False,
            enable_monitoring=False,
            show_error=False,
            ssr_mode=False,
            pwa=False,
            max_file_size="1mb",
            blocked_paths=[str(settings.home), str(Path.cwd())],
            favicon_path=str(FAVICON),
            theme=build_theme(),
            css=CSS,
            head=HEAD,
        )


def build_pages(repository: Repository, settings: Settings) -> gr.Blocks:
    """All pages, each under a header with the navigation and the worker's state."""
    blocks = gr.Blocks(title="FSD Lab", analytics_enabled=False, fill_width=True)
    for page in PAGES:
        with blocks if not page.path else blocks.route(page.title, page.path):
            build_header(repository, page)
            _BUILDERS[page.path](repository, settings)
    blocks.queue(max_size=64, default_concurrency_limit=8, api_open=False)
    return blocks
