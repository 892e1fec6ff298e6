"""The page for signing in with a password, and signing out after every kind of sign-in. Plain forms without scripts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, TypedDict
from urllib.parse import urlsplit

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from dashboard.server.bare_page import bare_page, sign_in_page
from dashboard.server.root_path import browser_scheme, root_of
from dashboard.ui.templates import render
from fsd_core.auth import credentials
from fsd_core.auth.identify import person_in
from fsd_core.auth.strangers import told_to_strangers
from fsd_core.errors import FsdError
from fsd_core.space import here

if TYPE_CHECKING:
    from fsd_core.roles import Person
    from fsd_core.storage.database.repository import Repository


class CookieOptions(TypedDict):
    """Options of a cookie."""

    path: str
    samesite: Literal["lax", "none"]
    secure: bool


def login_routes(repository: Repository, cookie: str) -> APIRouter:
    """Return the routes of ``/login`` and ``/password``. ``cookie`` is the name of the session's."""
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
        set_session_cookie(response, request, cookie, secret)
        return response

    @router.get("/password")
    def show_form(request: Request) -> HTMLResponse:
        return HTMLResponse(_password_page(request), 200 if _signed_in(request) else 403)

    @router.post("/password")
    async def change_password(
        request: Request, current: str = Form(""), new: str = Form(""), again: str = Form(""),
    ) -> Response:  # fmt: skip
        person, kept = _signed_in(request), request.cookies.get(cookie, "")
        if person is None:
            return HTMLResponse(_password_page(request), 403)
        if new != again:
            return HTMLResponse(_password_page(request, "The two new passwords differ: type the same twice."), 422)
        address = request.client.host if request.client else ""
        change = partial(credentials.change_own_password, repository, person.name, current, new, address, kept)
        try:
            await run_sync(change, limiter=judged_at_once)
        except FsdError as error:
            return HTMLResponse(_password_page(request, told_to_strangers(error)), 403)
        return RedirectResponse(f"{root_of(request)}/people", 303)

    return router


def logout_routes(repository: Repository, then: str, cookie: str) -> APIRouter:
    """Return the route ``/logout``, which leads to the page ``then``."""
    router = APIRouter()

    @router.post("/logout")
    def sign_out(request: Request, everywhere: str = Form("")) -> Response:
        if secret := request.cookies.get(cookie):
            (repository.sign_out_everywhere if everywhere else repository.sign_out)(credentials.digest(secret))
        response = RedirectResponse(root_of(request) + then, 303)
        response.delete_cookie(cookie, httponly=True, **_cookie_options(request))
        return response

    return router


def set_session_cookie(response: Response, request: Request, cookie: str, secret: str) -> None:
    """Set the cookie of a session."""
    seconds = int(credentials.SESSION.total_seconds())
    response.set_cookie(cookie, secret, max_age=seconds, httponly=True, **_cookie_options(request))


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


def _signed_in(request: Request) -> Person | None:
    """Return who is signed in with a cookie: a program, or whom a proxy names, has no password here."""
    person = person_in(request.scope)
    return person if person is not None and person.known and not person.is_program else None


def _password_page(request: Request, problem: str = "") -> str:
    person, root = _signed_in(request), root_of(request)
    body = render("server/pages.html", "new_password", root, person and person.name, problem)
    return bare_page(root, "Your password", body)


def _page(request: Request, next: str, name: str = "", problem: str = "") -> str:
    return sign_in_page(request, render("server/pages.html", "password", root_of(request), next, name), problem)
