"""Builds the web application: Gradio pages mounted on FastAPI, reachable only under known host names."""

from __future__ import annotations

import os
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported
# After each event, Gradio computes percentiles of its last 10,000 events, for a page that is closed here.
os.environ |= {"GRADIO_ANALYTICS_MAX_EVENTS": "1", "GRADIO_ANALYTICS_CACHE_FREQUENCY": str(10**12)}

import gradio as gr
from fastapi import FastAPI
from starlette.middleware.trustedhost import TrustedHostMiddleware

from dashboard.compare import compare_page
from dashboard.compare.comparison_endpoints import comparison_endpoints
from dashboard.compare.export_links import export_routes
from dashboard.compare.figure_files import figure_routes
from dashboard.experiments import experiments_page
from dashboard.experiments.experiment_endpoints import experiment_endpoints
from dashboard.experiments.task_file import task_routes
from dashboard.people import people_page
from dashboard.playground import playground_page
from dashboard.reports import reports_page
from dashboard.reports.report_endpoints import report_endpoints
from dashboard.reports.report_routes import report_routes
from dashboard.review import review_page
from dashboard.review.log_files import log_routes
from dashboard.review.review_endpoints import review_endpoints
from dashboard.review.use_endpoints import use_endpoints
from dashboard.runs import runs_page
from dashboard.runs.annotation_endpoints import annotation_endpoints
from dashboard.runs.workspace_file import workspace_routes
from dashboard.server.api import api_routes
from dashboard.server.api_problems import ApiProblems
from dashboard.server.blocks import Pages
from dashboard.server.calls import call_routes
from dashboard.server.forwarded import ForwardedHeaders
from dashboard.server.health import HeadAsGet, Health
from dashboard.server.link_preview import PREVIEW_PATH, preview_routes, replace_gradios_preview
from dashboard.server.login import login_routes, logout_routes
from dashboard.server.mlflow_pages import mlflow_routes
from dashboard.server.page_calls import PageCalls
from dashboard.server.response_headers import ResponseHeaders, content_policy
from dashboard.server.root_path import RootPath, WholePath
from dashboard.server.routes import OpenRoutes
from dashboard.server.sessions import NoSessions
from dashboard.settings import settings_page
from dashboard.start import start_page
from dashboard.tables.view_endpoints import view_endpoints
from dashboard.theory import theory_page
from dashboard.ui.components import link
from dashboard.ui.endpoint import Endpoint, answer_in_json, offer
from dashboard.ui.header import STATUS_SECONDS, Page, build_header
from dashboard.ui.polled import Polled
from dashboard.ui.signed_in import sign_in_link
from dashboard.ui.theme import FAVICON, HEAD, STYLE_SHEETS, build_theme
from dashboard.ui.worker_status import worker_status
from fsd_core.auth.identify import KEY, identifier
from fsd_core.auth.middleware.bodies import BoundedBody
from fsd_core.auth.middleware.origin import SameOrigin
from fsd_core.auth.middleware.sign_in import RequireSignIn
from fsd_core.review.reviewers import WaitingCount
from fsd_core.space import OAuthApp, here

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository

PAGES = (
    Page("Playground", "", playground_page.build),
    Page("Experiments", "experiments", experiments_page.build),
    Page("Compare", "compare", compare_page.build),
    Page("Runs", "runs", runs_page.build),
    Page("Settings", "settings", settings_page.build),
    Page("Review", "review", review_page.build),
    Page("Reports", "reports", reports_page.build),
    Page("Theory", "theory", theory_page.build),
    Page("Start", "start", start_page.build, in_bar=False),
    Page("People", "people", people_page.build, needs_accounts=True),
)
"""in the order of the navigation"""
ICON_PATH = "/favicon.ico"
EPHEMERAL_NOTE = (
    "This Space forgets its runs when it restarts. To keep them, attach a storage bucket at /data; an admin takes "
    "all of it along as one file, on the page Runs."
)


def pages_of(settings: Settings) -> list[Page]:
    """Return the pages of an installation."""
    return [page for page in PAGES if settings.access != "none" or not page.needs_accounts]


def endpoints_of(repository: Repository, settings: Settings) -> list[Endpoint]:
    """Return the calls for programs."""
    return [
        *experiment_endpoints(repository, settings),
        *annotation_endpoints(repository, settings.home),
        *comparison_endpoints(repository, settings.root_path),
        *use_endpoints(repository),
        *review_endpoints(repository, settings.root_path),
        *report_endpoints(repository, settings.root_path),
        *view_endpoints(repository, settings.root_path),
    ]


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
    app.add_middleware(OpenRoutes, pages=paths, first=first, access=settings.access)
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
    app.include_router(export_routes(repository))
    app.include_router(figure_routes(repository))
    app.include_router(report_routes(repository))
    app.include_router(log_routes(repository))
    app.include_router(workspace_routes(settings))
    app.include_router(task_routes(repository))
    app.include_router(api_routes(repository))
    app.include_router(call_routes(endpoints_of(repository, settings)))
    app.include_router(mlflow_routes(settings, repository))
    if settings.access == "password":
        app.include_router(login_routes(repository, settings.session_cookie))
    if settings.access == "huggingface":
        # Imports a library that no other kind of access needs.
        from dashboard.server.huggingface_login import huggingface_routes

        app.router.routes.extend(huggingface_routes(repository, settings, OAuthApp.of(), here()))
    if login:
        app.include_router(logout_routes(repository, "/" if settings.demo else login, settings.session_cookie))
    pages = build_pages(repository, settings)
    replace_gradios_preview({page.path: page.title for page in PAGES}, settings.installation)
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


def build_pages(repository: Repository, settings: Settings) -> gr.Blocks:
    """Return all pages, each under a header with the navigation and the worker's status."""
    blocks = Pages(title="FSD Lab", analytics_enabled=False, fill_width=True)
    with blocks:  # before the pages, whose events would take the endpoints' names
        offer(endpoints_of(repository, settings))
    status = Polled(partial(worker_status, repository, settings.executor), STATUS_SECONDS / 2)
    note = EPHEMERAL_NOTE if settings.is_ephemeral else ""
    waiting, pages = WaitingCount(repository), pages_of(settings)
    for page in pages:
        with blocks if not page.path else blocks.route(page.title, page.path):
            build_header(status, pages, page, visitor_sign_in_link(settings, f"/{page.path}"), note, waiting)
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
