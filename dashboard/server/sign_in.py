"""Signing in with a password or with Hugging Face, and signing out.

Sign-in with Hugging Face by OpenID Connect. It starts a session of this application, as a password does.

A Space is displayed in a frame of huggingface.co, where a browser may block the Space's cookies. So the link opens a
tab at the Space's own address, and the person continues there.
"""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict
from urllib.parse import urlsplit

import anyio.to_thread
import httpx2
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.base_client.errors import MismatchingStateError
from authlib.integrations.starlette_client import OAuth
from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from joserfc.errors import JoseError
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.routing import Route

from dashboard.server.requests import browser_scheme, preview, root_of
from dashboard.ui.templates import Html, document, render
from dashboard.ui.view import sign_in_link
from fsd_core import accounts
from fsd_core.accounts import Profile, person_in, role_of, told_to_strangers
from fsd_core.errors import FsdError
from fsd_core.settings import OAuthApp, here

if TYPE_CHECKING:
    from fsd_core.roles import Person
    from fsd_core.settings import Settings, Space
    from fsd_core.storage.repository import Repository


_CSS = (Path(__file__).parent / "bare_page.css").read_text(encoding="utf-8")


def bare_page(root: str, title: str, body: Html, shared: Html | None = None) -> str:
    """Return the page around its body. ``root`` is the path of the application, ``shared`` what a link to it shows."""
    return document("server/pages.html", "page", _CSS, root=root, title=title, body=body, preview=shared or Html())


def sign_in_page(request: Request, method: Html, problem: str = "") -> str:
    """Return the page with one method of signing in, and the problem of the last attempt.

    A link to any page leads here without a session, so here is what a link shows.
    """
    body = render("server/pages.html", "sign_in", problem, method)
    return bare_page(root_of(request), "Sign in", body, preview(request))


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
        return HTMLResponse(_login_document(request, local_address(next)))

    judged_at_once = CapacityLimiter(1)  # each takes a processor: guesses wait for each other

    @router.post("/login")
    async def sign_in(
        request: Request, name: str = Form(""), password: str = Form(""), next: str = Form("/"),
    ) -> Response:  # fmt: skip
        address = request.client.host if request.client else ""
        try:
            secret = await run_sync(
                accounts.sign_in, repository, name.strip(), password, address, limiter=judged_at_once
            )
        except FsdError as error:
            return HTMLResponse(_login_document(request, local_address(next), name, told_to_strangers(error)), 403)
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
        change = partial(accounts.change_own_password, repository, person.name, current, new, address, kept)
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
            (repository.sign_out_everywhere if everywhere else repository.sign_out)(accounts.digest(secret))
        response = RedirectResponse(root_of(request) + then, 303)
        response.delete_cookie(cookie, httponly=True, **_cookie_options(request))
        response.headers["Clear-Site-Data"] = '"cache"'  # pages, whose HTML has stored data
        return response

    return router


def set_session_cookie(response: Response, request: Request, cookie: str, secret: str) -> None:
    """Set the cookie of a session."""
    seconds = int(accounts.SESSION.total_seconds())
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


def _login_document(request: Request, next: str, name: str = "", problem: str = "") -> str:
    return sign_in_page(request, render("server/pages.html", "password", root_of(request), next, name), problem)


MINUTES = 10
"""time within which somebody has to return"""
_AGAIN = "sign in again."
CLAIMED_LONGEST = 200  # characters of an error that an address claims


def huggingface_routes(repository: Repository, settings: Settings, oauth: OAuthApp, space: Space | None) -> list[Route]:
    """Return the routes ``/login``, ``/login/huggingface`` and ``/login/callback``."""
    client: Any = OAuth().register(
        "huggingface",
        client_id=oauth.client_id,
        client_secret=oauth.client_secret,
        server_metadata_url=f"{oauth.provider}/.well-known/openid-configuration",
        client_kwargs={"scope": oauth.scopes, "code_challenge_method": "S256"},
    )

    async def show_page(request: Request) -> Response:
        return HTMLResponse(_huggingface_page(request, local_address(request.query_params.get("next", "/"))))

    async def go_to_provider(request: Request) -> Response:
        request.session["next"] = local_address(request.query_params.get("next", "/"))
        back = f"{space.url}/login/callback" if space else str(request.url_for("callback"))
        try:
            return await client.authorize_redirect(request, back)
        except httpx2.HTTPError as error:
            return _problem(request, f"Hugging Face cannot be reached ({_short(error)}): try again in a moment.", 502)

    async def finish_sign_in(request: Request) -> Response:
        try:
            profile = await _profile(request, client, oauth)
            role = role_of(profile, settings.hf_roles, space)
            secret = await anyio.to_thread.run_sync(accounts.sign_in_elsewhere, repository, profile.name, role)
        except FsdError as error:
            return _problem(request, told_to_strangers(error))
        except MismatchingStateError:
            return _problem(
                request,
                f"This answer belongs to no sign-in that this browser began in the last {MINUTES} minutes: {_AGAIN}",
            )
        except httpx2.HTTPError as error:
            return _problem(request, f"Hugging Face cannot be reached ({_short(error)}): try again in a moment.", 502)
        except AuthlibBaseError as error:
            return _problem(request, f"Hugging Face did not let you in ({_short(error)}): {_AGAIN}")
        except (JoseError, ValueError, LookupError, TypeError, RuntimeError) as error:
            return _problem(request, f"What Hugging Face answered cannot be believed ({_short(error)}): {_AGAIN}")
        response = RedirectResponse(root_of(request) + local_address(request.session.pop("next", "/")), 303)
        set_session_cookie(response, request, settings.session_cookie, secret)
        return response

    session = Middleware(
        SessionMiddleware,
        secret_key=secrets.token_urlsafe(32),  # per process: a sign-in takes only minutes
        session_cookie="fsd_signing_in",
        max_age=MINUTES * 60,
        path=f"{settings.root_path}/login",
        https_only=space is not None,
    )
    return [
        Route("/login", show_page),
        Route("/login/huggingface", go_to_provider, middleware=[session]),
        Route("/login/callback", finish_sign_in, name="callback", middleware=[session]),
    ]


async def _profile(request: Request, client: Any, oauth: OAuthApp) -> Profile:
    """Return the profile that the provider names, after checking signature, issuer, audience and nonce.

    Raises the library's errors, and ``ValueError`` for an inconsistent answer.
    """
    metadata = await client.load_server_metadata()
    claims = {"iss": {"essential": True, "values": [metadata["issuer"]]}, "aud": {"value": oauth.client_id}}
    token = await client.authorize_access_token(request, claims_options=claims)
    if "userinfo" not in token:
        raise ValueError("no id_token")
    userinfo = await client.userinfo(token=token)
    if userinfo.get("sub") != token["userinfo"]["sub"]:
        raise ValueError("two people in one answer")
    return Profile.read(userinfo)


def _huggingface_page(request: Request, next: str, problem: str = "") -> str:
    return sign_in_page(request, sign_in_link("Sign in with Hugging Face", next, "go", root_of(request)), problem)


def _problem(request: Request, sentence: str, status: int = 403) -> Response:
    return HTMLResponse(_huggingface_page(request, "/", sentence), status)


def _short(error: Exception) -> str:
    text = str(error).strip(" .:") or type(error).__name__
    return text if len(text) <= CLAIMED_LONGEST else f"{text[:CLAIMED_LONGEST]}…"
