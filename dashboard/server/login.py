"""The page for signing in with a password, and signing out after every kind of sign-in. Plain forms without scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict
from urllib.parse import urlsplit

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from dashboard.server.bare_page import sign_in_page
from dashboard.server.root_path import browser_scheme, root_of
from dashboard.ui.templates import render
from fsd_core.auth import credentials
from fsd_core.auth.identify import COOKIE
from fsd_core.auth.strangers import told_to_strangers
from fsd_core.errors import FsdError
from fsd_core.space import here

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


class CookieOptions(TypedDict):
    """Options of a cookie."""

    path: str
    samesite: Literal["lax", "none"]
    secure: bool


def login_routes(repository: Repository) -> APIRouter:
    """Return the routes of ``/login``."""
    router = APIRouter()

    @router.get("/login")
    def show_page(request: Request, next: str = "/") -> HTMLResponse:
        return HTMLResponse(_page(request, local_address(next)))

    judged_at_once = CapacityLimiter(1)  # each takes a processor: guesses wait for each other

    @router.post("/login")
    async def sign_in(
        request: Request, name: str = Form(""), password: str = Form(""), next: str = Form("/"),
    ) -> Response:  # fmt: skip
        address = request.client.host if request.client else ""
        try:
            secret = await run_sync(
                credentials.sign_in, repository, name.strip(), password, address, limiter=judged_at_once
            )
        except FsdError as error:
            return HTMLResponse(_page(request, local_address(next), name, told_to_strangers(error)), 403)
        response = RedirectResponse(root_of(request) + local_address(next), 303)
        set_session_cookie(response, request, secret)
        return response

    return router


def logout_routes(repository: Repository, then: str) -> APIRouter:
    """Return the route ``/logout``, which leads to the page ``then``."""
    router = APIRouter()

    @router.post("/logout")
    def sign_out(request: Request) -> Response:
        if secret := request.cookies.get(COOKIE):
            repository.sign_out(credentials.digest(secret))
        response = RedirectResponse(root_of(request) + then, 303)
        response.delete_cookie(COOKIE, httponly=True, **_cookie_options(request))
        return response

    return router


def set_session_cookie(response: Response, request: Request, secret: str) -> None:
    """Set the cookie of a session."""
    seconds = int(credentials.SESSION.total_seconds())
    response.set_cookie(COOKIE, secret, max_age=seconds, httponly=True, **_cookie_options(request))


def _cookie_options(request: Request) -> CookieOptions:
    """Return where a browser sends the cookie: to our own pages alone, and on a Space also in the frame of
    huggingface.co.

    It is not ``Partitioned``: the cookie of the tab in which somebody signs in would then not be the frame's.
    """
    path = root_of(request) or "/"
    if here() is not None:
        return {"path": path, "samesite": "none", "secure": True}
    return {"path": path, "samesite": "lax", "secure": browser_scheme(request) == "https"}


def local_address(address: str) -> str:
    """Return the address if it is one of ours, else the first page."""
    parts = urlsplit(address)
    plain = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if plain and not parts.netloc and not parts.scheme else "/"


def _page(request: Request, next: str, name: str = "", problem: str = "") -> str:
    return sign_in_page(request, render("server/pages.html", "password", root_of(request), next, name), problem)
