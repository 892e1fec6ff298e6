"""Sign-in with Hugging Face by OpenID Connect. It starts a session of this application, as a password does.

A Space is displayed in a frame of huggingface.co, where a browser may block the Space's cookies. So the link opens a
tab at the Space's own address, and the person continues there.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import httpx2
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.base_client.errors import MismatchingStateError
from authlib.integrations.starlette_client import OAuth
from joserfc.errors import JoseError
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from dashboard.server.bare_page import sign_in_page
from dashboard.server.login import local_address, set_session_cookie
from dashboard.server.root_path import root_of
from dashboard.ui.signed_in import sign_in_link
from fsd_core.auth import credentials
from fsd_core.auth.huggingface import Profile, role_of
from fsd_core.auth.strangers import told_to_strangers
from fsd_core.errors import FsdError
from fsd_core.space import OAuthApp

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.space import Space
    from fsd_core.storage.database.repository import Repository

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
        return HTMLResponse(_page(request, local_address(request.query_params.get("next", "/"))))

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
            secret = await anyio.to_thread.run_sync(credentials.sign_in_elsewhere, repository, profile.name, role)
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


def _page(request: Request, next: str, problem: str = "") -> str:
    return sign_in_page(request, sign_in_link("Sign in with Hugging Face", next, "go", root_of(request)), problem)


def _problem(request: Request, sentence: str, status: int = 403) -> Response:
    return HTMLResponse(_page(request, "/", sentence), status)


def _short(error: Exception) -> str:
    text = str(error).strip(" .:") or type(error).__name__
    return text if len(text) <= CLAIMED_LONGEST else f"{text[:CLAIMED_LONGEST]}…"
