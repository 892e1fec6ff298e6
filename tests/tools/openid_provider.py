"""An OpenID provider as Hugging Face is one: discovery, authorisation with PKCE, signed identities, user info."""

from __future__ import annotations

import base64
import hashlib
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.tools.sizes import PATIENCE

CLIENT, SECRET = "an-app-id", "an app's secret:/?"
HOUR = 3600


def organisation(name: str, role: str = "", **more: Any) -> dict[str, Any]:
    told = {"sub": name, "name": name.title(), "preferred_username": name, "isEnterprise": False}
    return told | ({"roleInOrg": role} if role else {}) | more


PEOPLE: dict[str, list[dict[str, Any]]] = {
    "ann": [],
    "bob": [organisation("my-team", "write"), organisation("others", "admin")],
    "cat": [organisation("my-team", "admin")],
    "dan": [organisation("my-team", "admin", securityRestrictions=["mfa"])],
    '"><script>alert(1)</script>': [],
}


@dataclass
class Provider:
    """The provider; what a test sets makes its next identity a wrong one."""

    url: str
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}))
    claims: dict[str, Any] = field(default_factory=dict)
    """in place of the right ones"""
    signed_with: RSAKey | None = None
    told_of: str | None = None
    """whom the user info is of, if not of who signed in"""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)

    def discovery(self, _request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/oauth/authorize",
                "token_endpoint": f"{self.url}/oauth/token",
                "userinfo_endpoint": f"{self.url}/oauth/userinfo",
                "jwks_uri": f"{self.url}/oauth/jwks",
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        )

    def jwks(self, _request: Request) -> Response:
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    def authorize(self, request: Request) -> Response:
        """Who wants to sign in is asked; the answer names somebody, or nobody."""
        asked = dict(request.query_params)
        assert (asked["client_id"], asked["response_type"]) == (CLIENT, "code")
        assert asked["code_challenge_method"] == "S256"
        assert {"openid", "profile"} <= set(asked["scope"].split())
        who = asked.pop("who", None)
        if who is None:
            links = (
                f'<p><a href="?{urlencode({**asked, "who": str(i)})}">person {i}</a></p>' for i in range(len(PEOPLE))
            )
            refusal = f'<a href="?{urlencode({**asked, "who": "no"})}">refuse</a>'
            return HTMLResponse("".join(links) + refusal)
        if who == "no":
            query = {"error": "access_denied", "error_description": "<b>no</b>", "state": asked["state"]}
            return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(query)}")
        code = secrets.token_urlsafe(16)
        self.codes[code] = {**asked, "name": list(PEOPLE)[int(who)]}
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}")

    async def token(self, request: Request) -> Response:
        form = await request.form()
        basic = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
        asked = self.codes.pop(str(form["code"]), None)
        proof = (
            base64.urlsafe_b64encode(hashlib.sha256(str(form["code_verifier"]).encode()).digest()).decode().strip("=")
        )
        if basic != f"{CLIENT}:{SECRET}" or asked is None or proof != asked["code_challenge"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        if form["redirect_uri"] != asked["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        name, now = asked["name"], int(time.time())
        access = secrets.token_urlsafe(16)
        self.tokens[access] = name
        right = {
            "iss": self.url, "sub": f"id-of-{name}", "aud": CLIENT, "iat": now, "exp": now + HOUR,
            "nonce": asked["nonce"],
        }  # fmt: skip
        identity = jwt.encode({"alg": "RS256", "kid": "one"}, right | self.claims, self.signed_with or self.key)
        return JSONResponse({"access_token": access, "token_type": "bearer", "expires_in": HOUR, "id_token": identity})

    def userinfo(self, request: Request) -> Response:
        name = self.tokens[request.headers["authorization"].removeprefix("Bearer ")]
        told = self.told_of or name
        return JSONResponse({"sub": f"id-of-{told}", "preferred_username": told, "orgs": PEOPLE[told]})

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.discovery),
                Route("/oauth/jwks", self.jwks),
                Route("/oauth/authorize", self.authorize),
                Route("/oauth/token", self.token, methods=["POST"]),
                Route("/oauth/userinfo", self.userinfo),
            ]
        )


@contextmanager
def providing() -> Iterator[Provider]:
    """The provider on another site than the application's: ``localhost``, not 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        provider = Provider(f"http://localhost:{listener.getsockname()[1]}")
        # A connection is kept while a machine pauses: whoever asks has looked at a clock before.
        config = uvicorn.Config(provider.app(), log_level="warning", timeout_keep_alive=int(PATIENCE))
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield provider
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
