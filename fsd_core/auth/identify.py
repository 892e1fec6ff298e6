"""Identification of who makes a request, by the installation's access mode."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from cachetools import TTLCache
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Scope

from fsd_core.auth import credentials
from fsd_core.roles import GUEST, LOCAL, LONGEST_PERSON_NAME, ROLES, VISITOR, Person

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository

KEY = "fsd.person"
"""in a request's scope"""
KEPT_SECONDS = 2.0
"""for which an identified person is cached, so that a page's polls do not query the database each time"""

Identify = Callable[[Scope], Person | None]


def identifier(settings: Settings, repository: Repository) -> Identify:
    """Return the function that identifies who makes a request; ``None`` for somebody who must sign in first.

    The function raises ``DatabaseUnavailable``.
    """
    if settings.access == "none":
        everyone = GUEST if settings.demo else LOCAL
        return lambda scope: everyone
    cache: TTLCache[str, Person] = TTLCache(1000, KEPT_SECONDS, time.monotonic)
    lock = threading.Lock()  # several threads handle requests, and the cache is not thread-safe

    def remembered(kind: str, secret: str, lookup: Callable[[Repository, str], Person | None]) -> Person | None:
        key = f"{kind} {secret}"
        with lock:
            person = cache.get(key)
        if person is None and (person := lookup(repository, secret)) is not None and not person.must_choose_password:
            with lock:
                cache[key] = person
        return person

    def by_token(scope: Scope) -> Person | None:
        secret = _bearer(scope)
        program = remembered("token", secret, credentials.whose_token) if secret else None
        if program is None or settings.access != "proxy" or program.owner in (None, "", LOCAL.name):
            return program
        roles = program.role, settings.role_behind_proxy(str(program.owner))  # the proxy's people are not stored
        return program._replace(role=min(roles, key=ROLES.index))

    def by_cookie(scope: Scope) -> Person | None:
        secret = HTTPConnection(scope).cookies.get(settings.session_cookie)
        return remembered("cookie", secret, credentials.whose_cookie) if secret else None

    def by_proxy(scope: Scope) -> Person | None:
        headers = Headers(scope=scope).getlist(settings.proxy_header)
        client = (scope.get("client") or ("", 0))[0]
        if client not in settings.proxies or len(headers) != 1 or not headers[0].strip():
            return None
        name = headers[0].strip()[:LONGEST_PERSON_NAME].replace("/", "\\")  # a slash is for names of programs
        return Person(name, settings.role_behind_proxy(name))

    second = by_proxy if settings.access == "proxy" else by_cookie
    fallback = VISITOR if settings.demo else None
    # Whoever presents a token of ours that is void acts as nobody else instead.
    return lambda scope: by_token(scope) or (None if presents_token(scope) else second(scope) or fallback)


def presents_token(scope: Scope) -> bool:
    """Whether a request has a token of ours, valid or not."""
    return _bearer(scope).startswith(credentials.TOKEN_PREFIX)


def _bearer(scope: Scope) -> str:
    kind, _, secret = Headers(scope=scope).get("authorization", "").partition(" ")
    return secret if kind.lower() == "bearer" else ""


def person_in(scope: Scope) -> Person | None:
    """Return who makes the request, as :class:`fsd_core.auth.middleware.sign_in.RequireSignIn` identified them."""
    person = scope.get(KEY)
    return person if isinstance(person, Person) and person.role in ROLES else None
