"""Reject unauthenticated requests, except to the login page and what is public."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import quote

import anyio.to_thread
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fsd_core.auth.identify import presents_token
from fsd_core.auth.middleware.refusal import looks_for_page, refuse
from fsd_core.auth.strangers import told_to_strangers
from fsd_core.errors import FsdError

_WANTED, _INVALID = 'Bearer realm="FSD Lab"', 'Bearer realm="FSD Lab", error="invalid_token"'
"""challenges of RFC 6750"""
PASSWORD = "/password"
"""the page on which people choose a password"""


class RequireSignIn:
    """Stores who makes a request in its scope, under ``key``.

    Unauthenticated requests for a page are redirected to the page ``login``, and all others are refused. ``identify``
    may read a database. Who signed in with a one-time password may choose another and sign out alone. The page
    ``login`` and the addresses below it are open to everybody. It is ``None`` if nobody can sign in here, such as
    behind a proxy. The paths ``public`` are open to everybody, too.
    """

    def __init__(
        self, app: ASGIApp, identify: Callable[[Scope], Any], key: str, login: str | None, public: Collection[str] = ()
    ) -> None:
        self.app, self.identify, self.key, self.login, self.public = app, identify, key, login, frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self.public:
            return await self.app(scope, receive, send)
        try:
            person = await anyio.to_thread.run_sync(self.identify, scope)
        except FsdError as error:
            return await refuse(receive, send, 503, told_to_strangers(error))
        if getattr(person, "must_choose_password", False) and scope["path"] not in (PASSWORD, "/logout", self.login):
            if looks_for_page(scope):
                return await RedirectResponse(f"{scope.get('root_path', '')}{PASSWORD}", 303)(scope, receive, send)
            told = "You signed in with a one-time password: choose one of your own first, on the page Your password."
            return await refuse(receive, send, 403, told)
        if person is not None:
            return await self.app({**scope, self.key: person}, receive, send)
        if self.login is not None and (scope["path"] == self.login or scope["path"].startswith(f"{self.login}/")):
            return await self.app(scope, receive, send)
        if self.login is not None and looks_for_page(scope) and not presents_token(scope):
            target = scope["path"] + (f"?{query}" if (query := scope["query_string"].decode("latin-1")) else "")
            address = f"{scope.get('root_path', '')}{self.login}?next={quote(target)}"
            return await RedirectResponse(address, 303)(scope, receive, send)
        if presents_token(scope):
            told, challenge = "This token is not known here, was revoked, or has expired: make a new one.", _INVALID
        else:
            told, challenge = "Sign in first, or send a token: Authorization: Bearer …", _WANTED
        return await refuse(receive, send, 401, told, {"WWW-Authenticate": challenge})
