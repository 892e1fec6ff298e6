"""The page on which people sign in with a password, and the way out of every sign-in: plain forms without scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from dashboard.server.bare_page import sign_in_page
from dashboard.ui.templates import render
from fsd_core.auth import credentials
from fsd_core.auth.identify import COOKIE
from fsd_core.errors import FsdError
from fsd_core.space import here

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


class CookieOptions(TypedDict):
    """Options of a cookie."""

    samesite: Literal["lax", "none"]
    secure: bool


def login_routes(repository: Repository) -> APIRouter:
    """``/login``."""
    router = APIRouter()

    @router.get("/login")
    def ask(next: str = "/") -> HTMLResponse:
        return HTMLResponse(_page(inside(next)))

    @router.post("/login")
    def answer(
        request: Request, name: str = Form(""), password: str = Form(""), next: str = Form("/"),
    ) -> Response:  # fmt: skip
        try:
            secret = credentials.sign_in(repository, name.strip(), password)
        except FsdError as error:
            return HTMLResponse(_page(inside(next), name, str(error)), 403)
        response = RedirectResponse(inside(next), 303)
        keep_signed_in(response, request, secret)
        return response

    return router


def logout_routes(repository: Repository, then: str) -> APIRouter:
    """``/logout``, and the page ``then``."""
    router = APIRouter()

    @router.post("/logout")
    def leave(request: Request) -> Response:
        if secret := request.cookies.get(COOKIE):
            repository.sign_out(credentials.digest(secret))
        response = RedirectResponse(then, 303)
        response.delete_cookie(COOKIE, httponly=True, **_reach(request))
        return response

    return router


def keep_signed_in(response: Response, request: Request, secret: str) -> None:
    """Sets the cookie of a session."""
    seconds = int(credentials.SESSION.total_seconds())
    response.set_cookie(COOKIE, secret, max_age=seconds, httponly=True, **_reach(request))


def _reach(request: Request) -> CookieOptions:
    """Where a browser sends the cookie: to our own pages, and on a Space also where huggingface.co shows them framed.

    Not ``Partitioned``: a cookie of the tab in which somebody signs in would then be another one than the frame's.
    """
    if here() is not None:
        return {"samesite": "none", "secure": True}
    return {"samesite": "lax", "secure": request.url.scheme == "https"}


def inside(address: str) -> str:
    """The address if it is one of ours, else the first page."""
    parts = urlsplit(address)
    plain = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if plain and not parts.netloc and not parts.scheme else "/"


def _page(next: str, name: str = "", problem: str = "") -> str:
    return sign_in_page(render("server/pages.html", "password", next, name), problem)
